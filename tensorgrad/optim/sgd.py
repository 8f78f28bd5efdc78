"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_lr, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["SGD", "sgd"]


def _sgd(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= lr · direction. ``decay`` and ``take`` (1 - dampening) are ``None`` where they change nothing."""
    (g, *buffers), (s, t) = arrays, scratch
    fresh, lr, decay, momentum, take, maximize, nesterov = constants
    g = descent(xp, x, g, decay, maximize, t, s)
    if buffers:
        (buffer,) = buffers
        if fresh:
            buffer[...] = g
        else:
            xp.multiply(buffer, momentum, buffer)
            xp.add(buffer, g if take is None else xp.multiply(g, take, t), buffer)
        g = xp.add(g, xp.multiply(buffer, momentum, t), s) if nesterov else buffer
    xp.subtract(x, xp.multiply(g, lr, t), x)


class SGD(Elementwise):
    """Moves each parameter against its gradient: p -= lr · g; with momentum, against a decaying sum of gradients.

    With momentum, b = momentum · b + (1 - dampening) · g takes the place of g (Polyak, 1964, *Some methods of speeding
    up the convergence of iteration methods*); the first b is g.

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        momentum: how much of the sum is kept.
        dampening: how much less of each gradient enters it.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        nesterov: move along g + momentum · b instead of b (Sutskever et al., 2013, *On the importance of
            initialization and momentum in deep learning*).
        maximize: move along the gradient instead of against it.
        foreach, fused: accepted and ignored: there is one implementation.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a negative setting, or Nesterov momentum without momentum or with dampening.

    Example::

        >>> import tensorgrad as torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.SGD([w], lr=0.5)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    _move = staticmethod(_sgd)
    compiled = "step of SGD"
    scratch = 2
    real = False
    timeless = True
    counters = ()
    recorded_foreach = True
    older: ClassVar = {
        "nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr, nan=True)  # which the other optimizers refuse
        check("momentum value", momentum, not momentum < 0.0)
        check("weight_decay value", weight_decay, not weight_decay < 0.0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        grad: Any = p.grad
        state["momentum_buffer"] = torch.empty_like(grad)

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> bool:
        return fresh

    def _moving(self, time: bool | None, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return (bool(time),)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        decay, dampening = read(group["weight_decay"]), group["dampening"]
        decay, take = decay if decay != 0 else None, 1 - dampening if dampening else None
        return read(group["lr"]), decay, group["momentum"], take, group["maximize"], group["nesterov"]


sgd = functional(SGD, "sgd", ["momentum_buffer"])
