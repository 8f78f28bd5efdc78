"""Adamax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_betas, check_lr, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["Adamax", "adamax"]


def _adamax(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, m, largest), (s, t) = arrays, scratch
    rate, decay, take1, keep2, eps, maximize = constants
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.subtract(g, m, s)
    xp.add(m, xp.multiply(s, take1, s), m)
    xp.add(xp.absolute(g, s), eps, s)
    xp.multiply(largest, keep2, largest)
    xp.maximum(largest, s, out=largest)
    xp.divide(m, largest, s)
    xp.subtract(x, xp.multiply(s, rate, s), x)


class Adamax(Elementwise):
    """Adam with the largest gradient, which fades, in the place of the root of the mean squared gradient.

    m = β₁ m + (1 - β₁) g and u = max(β₂ u, \\|g\\| + eps), then p -= lr / (1 - β₁ᵗ) · m / u (Kingma and Ba, 2014,
    *Adam: A Method for Stochastic Optimization*, section 7.1).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        betas: (β₁, β₂).
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.
        capturable: accepted where PyTorch does, on CUDA.

    Raises:
        ValueError: a setting out of its range.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adamax([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _move = staticmethod(_adamax)
    scratch = 2
    older: ClassVar = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

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
        check_lr(lr)
        check("epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group)
        state["exp_avg"], state["exp_inf"] = torch.zeros_like(p), torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "exp_avg", "exp_inf"

    def _moving(self, time: float, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return (read(group["lr"]) / (1 - group["betas"][0] ** time),)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        beta1, beta2 = group["betas"]
        return group["weight_decay"] or None, 1 - beta1, beta2, group["eps"], group["maximize"]


adamax = functional(Adamax, "adamax", ["exp_avg", "exp_inf", "step"])
