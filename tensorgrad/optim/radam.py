"""Rectified Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_betas, check_lr, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["RAdam", "radam"]


def _radam(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= rate · m, divided by √v + eps where ``adaptive``."""
    (g, m, v), (s, t) = arrays, scratch
    rate, adaptive, eps, shrink, decay, take1, keep2, take2, maximize = constants
    if shrink is not None:
        xp.multiply(x, shrink, x)
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.subtract(g, m, s)
    xp.add(m, xp.multiply(s, take1, s), m)
    xp.multiply(g, g, s)
    xp.multiply(s, take2, s)
    xp.multiply(v, keep2, v)
    xp.add(v, s, v)
    xp.multiply(m, rate, t)
    if adaptive:
        xp.add(xp.sqrt(v, s), eps, s)
        xp.divide(t, s, t)
    xp.subtract(x, t, x)


class RAdam(Elementwise):
    """Adam that trusts the mean squared gradient only once it rests on enough steps.

    With m̂ and v as in :class:`Adam`, p -= lr · m̂ in the first steps; and as soon as ρₜ = ρ - 2 t β₂ᵗ / (1 - β₂ᵗ),
    where ρ = 2 / (1 - β₂) - 1, is above 5, p -= lr · r · m̂ · √(1 - β₂ᵗ) / (√v + eps), where
    r² = (ρₜ - 4) (ρₜ - 2) ρ / ((ρ - 4) (ρ - 2) ρₜ) (Liu et al., 2019, *On the Variance of the Adaptive Learning Rate
    and Beyond*).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        decoupled_weight_decay: shrink the parameter itself instead, as :class:`AdamW` does.
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        capturable: accepted where PyTorch does, on CUDA.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a setting out of its range.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.RAdam([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _move = staticmethod(_radam)
    scratch = 2
    older: ClassVar = {
        "foreach": None, "maximize": False, "differentiable": False, "decoupled_weight_decay": False,
        "capturable": False,
    }  # fmt: skip

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
        check_lr(lr)
        check("epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_avg_sq"

    def _moving(self, time: float, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = group["betas"]
        lr, correction = read(group["lr"]) / (1 - beta1**time), 1 - beta2**time
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * time * beta2**time / correction
        if rho <= 5:
            return lr, False
        rectified = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
        return lr * (correction * rectified) ** 0.5, True

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = group["betas"]
        decay, shrink = group["weight_decay"] or None, None
        if decay and group["decoupled_weight_decay"]:
            decay, shrink = None, 1 - read(group["lr"]) * decay
        return group["eps"], shrink, decay, 1 - beta1, beta2, 1 - beta2, group["maximize"]


radam = functional(RAdam, "radam", ["exp_avg", "exp_avg_sq", "step"])
