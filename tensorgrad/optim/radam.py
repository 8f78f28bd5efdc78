"""Rectified Adam."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check_settings
from tensorgrad.optim.elementwise import Elementwise, descent, shrink_and_decay
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import counts_and_zeros

__all__ = ["RAdam", "radam"]


class Coefficients(NamedTuple):
    """The coefficients of a step: p -= rate · m, divided by √v + eps if `adaptive`."""

    rate: float
    adaptive: bool
    eps: float
    shrink: float | None  # the factor of decoupled weight decay on p
    decay: float | None  # weight_decay otherwise
    take1: float  # 1 - β₁
    beta2: float
    take2: float  # 1 - β₂
    maximize: bool


class RAdam(Elementwise):
    """Adam that uses the mean squared gradient only after enough steps for a reliable estimate.

    With m̂ and v as in `Adam`, p -= lr · m̂ in the first steps. As soon as ρₜ = ρ - 2 t β₂ᵗ / (1 - β₂ᵗ), where
    ρ = 2 / (1 - β₂) - 1, exceeds 5, p -= lr · r · m̂ · √(1 - β₂ᵗ) / (√v + eps), where
    r² = (ρₜ - 4) (ρₜ - 2) ρ / ((ρ - 4) (ρ - 2) ρₜ) (Liu et al., 2019, *On the Variance of the Adaptive Learning Rate
    and Beyond*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        decoupled_weight_decay: shrink the parameter itself instead, as in `AdamW`.
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.RAdam([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _flags = flags.RADAM

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    _counted_on_device = None  # a branch depends on the number of steps

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        return counts_and_zeros(group, "exp_avg", "exp_avg_sq")

    @staticmethod
    def _coefficients(group: dict[str, Any], t: float) -> Coefficients:
        beta1, beta2 = group["betas"]
        rate, correction = group["lr"] / (1 - beta1**t), 1 - beta2**t
        limit = 2 / (1 - beta2) - 1  # ρ
        rho = limit - 2 * t * beta2**t / correction
        adaptive = bool(rho > 5)
        if adaptive:
            rectified = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)  # r²
            rate = rate * (correction * rectified) ** 0.5
        decays = shrink_and_decay(group)
        return Coefficients(rate, adaptive, group["eps"], *decays, 1 - beta1, beta2, 1 - beta2, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, exp_avg: Any, exp_avg_sq: Any, n: Coefficients, s: Any, r: Any) -> None:
        m, v = exp_avg, exp_avg_sq
        if n.shrink is not None:
            xp.multiply(x, n.shrink, x)
        g = descent(xp, x, g, n, s, r)
        xp.add(m, xp.multiply(xp.subtract(g, m, s), n.take1, s), m)  # m = β₁ m + (1 - β₁) g
        xp.multiply(xp.multiply(g, g, s), n.take2, s)
        xp.add(xp.multiply(v, n.beta2, v), s, v)  # v = β₂ v + (1 - β₂) g²
        xp.multiply(m, n.rate, r)
        if n.adaptive:
            xp.divide(r, xp.add(xp.sqrt(v, s), n.eps, s), r)
        xp.subtract(x, r, x)  # p -= rate · m, or rate · m / (√v + eps)


radam = functional(RAdam, "radam", ["exp_avg", "exp_avg_sq", "step"])
