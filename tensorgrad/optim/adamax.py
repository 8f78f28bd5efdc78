"""Adamax."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check_settings
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import counts_and_zeros

__all__ = ["Adamax", "adamax"]


class Coefficients(NamedTuple):
    """The coefficients of a step."""

    rate: float  # lr / (1 - β₁ᵗ)
    decay: float | None  # weight_decay, unless that is 0
    take1: float  # 1 - β₁
    beta2: float
    eps: float
    maximize: bool


class Adamax(Elementwise):
    """Adam with a decaying maximum of the gradients instead of the root of the mean squared gradient.

    m = β₁ m + (1 - β₁) g and u = max(β₂ u, \\|g\\| + eps), then p -= lr / (1 - β₁ᵗ) · m / u (Kingma and Ba, 2014,
    *Adam: A Method for Stochastic Optimization*, section 7.1).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.
        capturable: accepted for parameters on CUDA, as in PyTorch.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adamax([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _flags = flags.ADAMAX

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        return counts_and_zeros(group, "exp_avg", "exp_inf")

    @staticmethod
    def _coefficients(group: dict[str, Any], t: float) -> Coefficients:
        beta1, beta2 = group["betas"]
        rate, decay = group["lr"] / (1 - beta1**t), group["weight_decay"] or None
        return Coefficients(rate, decay, 1 - beta1, beta2, group["eps"], group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, exp_avg: Any, exp_inf: Any, n: Coefficients, s: Any, r: Any) -> None:
        m, u = exp_avg, exp_inf
        g = descent(xp, x, g, n, s, r)
        xp.add(m, xp.multiply(xp.subtract(g, m, s), n.take1, s), m)  # m = β₁ m + (1 - β₁) g
        xp.add(xp.absolute(g, s), n.eps, s)
        xp.maximum(xp.multiply(u, n.beta2, u), s, out=u)  # u = max(β₂ u, |g| + eps)
        xp.subtract(x, xp.multiply(xp.divide(m, u, s), n.rate, s), x)  # p -= rate · m / u


adamax = functional(Adamax, "adamax", ["exp_avg", "exp_inf", "step"])
