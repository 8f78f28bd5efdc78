"""Adam with Nesterov momentum."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_settings
from tensorgrad.optim.elementwise import Elementwise, descent, shrink_and_decay
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import count, counts_and_zeros

__all__ = ["NAdam", "nadam"]


class Coefficients(NamedTuple):
    """The coefficients of a step, p -= (rate · g + ahead · m) / (√v + eps), including the bias correction of v."""

    rate: float
    ahead: float
    eps: float
    shrink: float | None  # the factor of decoupled weight decay on p
    decay: float | None  # weight_decay otherwise
    take1: float  # 1 - β₁
    beta2: float
    take2: float  # 1 - β₂
    maximize: bool


class NAdam(Elementwise):
    """Adam with Nesterov momentum, which looks one step ahead.

    m = β₁ m + (1 - β₁) g and v = β₂ v + (1 - β₂) g² as in `Adam`, then
    p -= lr · ((1 - μₜ) / (1 - Πₜ) · g + μₜ₊₁ / (1 - Πₜ₊₁) · m) / (√v̂ + eps), where v̂ = v / (1 - β₂ᵗ),
    μₜ = β₁ (1 - 0.96^(t · momentum_decay) / 2), and Πₜ is the product of all μ up to μₜ (Dozat, 2016, *Incorporating
    Nesterov Momentum into Adam*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        momentum_decay: how fast μ increases.
        decoupled_weight_decay: shrink the parameter itself instead, as in `AdamW`.
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.NAdam([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.4718, 0.4718], requires_grad=True)
    """

    _flags = flags.NADAM

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        check("momentum_decay value", momentum_decay, momentum_decay >= 0.0)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        return counts_and_zeros(group, "exp_avg", "exp_avg_sq", mu_product=1)

    @staticmethod
    def _count(state: dict[str, Any], group: dict[str, Any]) -> tuple[float, Any]:
        """Counts the step. Returns t and Πₜ."""
        t, product = count(state), state["mu_product"]
        if product.requires_grad and group["differentiable"]:
            state["mu_product"] = product * _mu(t, group)
            return t, state["mu_product"]
        product._array *= _mu(t, group)
        return t, product._array.item()

    @staticmethod
    def _counted_on_device(t: Any, state: dict[str, Any], group: dict[str, Any]) -> tuple[Any, Any]:
        product = state["mu_product"]._array
        product *= _mu(t, group)
        return t, product.astype(t.dtype)

    @staticmethod
    def _coefficients(group: dict[str, Any], t_and_product: tuple[float, Any]) -> Coefficients:
        (t, product), (beta1, beta2) = t_and_product, group["betas"]
        root = (1 - beta2**t) ** 0.5
        lr, mu, following = group["lr"] * root, _mu(t, group), _mu(t + 1, group)
        rate, ahead = lr * (1 - mu) / (1 - product), lr * following / (1 - product * following)
        decays = shrink_and_decay(group)
        return Coefficients(rate, ahead, group["eps"] * root, *decays, 1 - beta1, beta2, 1 - beta2, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, exp_avg: Any, exp_avg_sq: Any, n: Coefficients, s: Any, r: Any) -> None:
        m, v = exp_avg, exp_avg_sq
        if n.shrink is not None:
            xp.multiply(x, n.shrink, x)
        g = descent(xp, x, g, n, s, r)
        xp.add(m, xp.multiply(xp.subtract(g, m, s), n.take1, s), m)  # m = β₁ m + (1 - β₁) g
        xp.multiply(xp.multiply(g, g, s), n.take2, s)
        xp.add(xp.multiply(v, n.beta2, v), s, v)  # v = β₂ v + (1 - β₂) g²
        xp.add(xp.multiply(g, n.rate, r), xp.multiply(m, n.ahead, s), r)
        xp.divide(r, xp.add(xp.sqrt(v, s), n.eps, s), s)
        xp.subtract(x, s, x)  # p -= (rate · g + ahead · m) / (√v + eps)


def _mu(step: float, group: dict[str, Any]) -> float:
    return group["betas"][0] * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))


nadam = functional(NAdam, "nadam", ["exp_avg", "exp_avg_sq", "mu_product", "step"])
