"""Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_betas, check_lr, count, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["NAdam", "nadam"]


def _nadam(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= (rate · g + ahead · m) / (√v + eps), with the bias correction of v already in all three."""
    (g, m, v), (s, t) = arrays, scratch
    rate, ahead, eps, shrink, decay, take1, keep2, take2, maximize = constants
    if shrink is not None:
        xp.multiply(x, shrink, x)
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.subtract(g, m, s)
    xp.add(m, xp.multiply(s, take1, s), m)
    xp.multiply(g, g, s)
    xp.multiply(s, take2, s)
    xp.multiply(v, keep2, v)
    xp.add(v, s, v)
    g = xp.multiply(g, rate, t)
    xp.add(g, xp.multiply(m, ahead, s), t)
    xp.add(xp.sqrt(v, s), eps, s)
    xp.subtract(x, xp.divide(t, s, s), x)


class NAdam(Elementwise):
    """Adam that looks one step of its momentum ahead.

    m = β₁ m + (1 - β₁) g and v = β₂ v + (1 - β₂) g² as in :class:`Adam`, then
    p -= lr · ((1 - μₜ) / (1 - Πₜ) · g + μₜ₊₁ / (1 - Πₜ₊₁) · m) / (√v̂ + eps), where v̂ = v / (1 - β₂ᵗ),
    μₜ = β₁ (1 - 0.96^(t · momentum_decay) / 2), and Πₜ is the product of all μ up to μₜ (Dozat, 2016, *Incorporating
    Nesterov Momentum into Adam*).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        momentum_decay: how fast μ rises.
        decoupled_weight_decay: shrink the parameter itself instead, as :class:`AdamW` does.
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        capturable: accepted where PyTorch does, on CUDA.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a setting out of its range.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.NAdam([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.4718, 0.4718], requires_grad=True)
    """

    _move = staticmethod(_nadam)
    scratch = 2
    counters = ("step", "mu_product")
    counted = "params, mu_products and state_steps"
    older: ClassVar = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False,
    }  # fmt: skip

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
        check_lr(lr)
        check("epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        check("momentum_decay value", momentum_decay, momentum_decay >= 0.0)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"], state["mu_product"] = counter(0, p, group), counter(1, p, group)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq"

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> tuple[float, Any]:
        step, product = count(state), state["mu_product"]
        if product.requires_grad and group["differentiable"]:
            state["mu_product"] = product * _mu(step, group)
            return step, state["mu_product"]
        product._array *= _mu(step, group)
        return step, product._array.item()

    def _moving(self, time: tuple[float, Any], group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        step, product = time
        root = (1 - group["betas"][1] ** step) ** 0.5
        lr, mu, following = read(group["lr"]) * root, _mu(step, group), _mu(step + 1, group)
        return lr * (1 - mu) / (1 - product), lr * following / (1 - product * following), group["eps"] * root

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = group["betas"]
        decay, shrink = group["weight_decay"] or None, None
        if decay and group["decoupled_weight_decay"]:
            decay, shrink = None, 1 - read(group["lr"]) * decay
        return shrink, decay, 1 - beta1, beta2, 1 - beta2, group["maximize"]


def _mu(step: float, group: dict[str, Any]) -> float:
    return group["betas"][0] * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))


nadam = functional(NAdam, "nadam", ["exp_avg", "exp_avg_sq", "mu_product", "step"])
