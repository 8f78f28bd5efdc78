"""Adadelta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import CAPTURABLE_DEVICES, Elementwise, check, check_lr, count, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["Adadelta", "adadelta"]


def _adadelta(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, v, u), (s, t) = arrays, scratch
    lr, keep, take, eps, decay, maximize = constants
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.multiply(g, g, s)
    xp.multiply(s, take, s)
    xp.multiply(v, keep, v)
    xp.add(v, s, v)
    xp.sqrt(xp.add(v, eps, s), s)
    xp.divide(g, s, t)
    xp.sqrt(xp.add(u, eps, s), s)
    xp.multiply(t, s, t)  # the change of x
    xp.multiply(t, t, s)
    xp.multiply(s, take, s)
    xp.multiply(u, keep, u)
    xp.add(u, s, u)
    xp.subtract(x, xp.multiply(t, lr, t), x)


class Adadelta(Elementwise):
    """Moves each element by g · √(u + eps) / √(v + eps), the units of which are those of the parameter.

    v = rho · v + (1 - rho) g² is the mean squared gradient, u = rho · u + (1 - rho) d² that of the changes
    d = g · √(u + eps) / √(v + eps) so far; p -= lr · d (Zeiler, 2012, *ADADELTA: An Adaptive Learning Rate Method*).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: what the change is multiplied by; 1 in the paper.
        rho: how much of the means is kept.
        eps: starts the first changes, and keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        foreach: accepted and ignored: there is one implementation.
        capturable: accepted where PyTorch does, on CUDA.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a setting out of its range.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adadelta([w], eps=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.2929, 0.2929], requires_grad=True)
    """

    _move = staticmethod(_adadelta)
    scratch = 2
    timeless = True
    capturable_devices: ClassVar = CAPTURABLE_DEVICES[:-1]
    older: ClassVar = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check("rho value", rho, 0.0 <= rho <= 1.0)
        check("epsilon value", eps, eps >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group)
        state["square_avg"], state["acc_delta"] = torch.zeros_like(p), torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "square_avg", "acc_delta"

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> None:
        count(state)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        rho, decay = group["rho"], group["weight_decay"] or None
        return read(group["lr"]), rho, 1 - rho, group["eps"], decay, group["maximize"]


adadelta = functional(Adadelta, "adadelta", ["square_avg", "acc_delta", "step"])
