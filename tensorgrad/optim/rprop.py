"""Resilient backpropagation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check_lr, count, counter, number
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["Rprop", "rprop"]


def _rprop(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, previous, size), (s, t) = arrays, scratch
    shrink, grow, least, most, zero, one, maximize = constants
    if maximize:
        g = xp.negative(g, t)
    xp.sign(xp.multiply(g, previous, s), s)
    turned, still, straight = xp.less(s, zero), xp.equal(s, zero), xp.greater(s, zero)
    for factor, where in ((shrink, turned), (one, still), (grow, straight)):  # where it is nan, it stays nan
        xp.copyto(s, factor, where=where)
    xp.multiply(size, s, size)
    xp.clip(size, least, most, size)
    xp.copyto(previous, g)
    xp.copyto(previous, zero, where=turned)
    xp.sign(previous, s)
    xp.subtract(x, xp.multiply(s, size, s), x)


class Rprop(Elementwise):
    """Moves each element by a step size of its own, of which the gradient only says the sign.

    The step size is multiplied by the second of ``etas`` while the gradient keeps its sign; where the sign has turned,
    by the first, and the element rests for a step (Riedmiller and Braun, 1993, *A direct adaptive method for faster
    backpropagation learning*). For whole batches: the signs of mini-batches' gradients are mostly noise.

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the first step size.
        etas: by what a step size is multiplied after a turn, and otherwise.
        step_sizes: the least and the largest step size.
        capturable: accepted where PyTorch does, on CUDA.
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a negative learning rate, or not 0 < etas[0] < 1 < etas[1].

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Rprop([w], lr=0.5)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     w.sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([-0.1000, -0.1000], requires_grad=True)
    """

    _move = staticmethod(_rprop)
    scratch = 2
    timeless = True
    older: ClassVar = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        lr = float(number(group["lr"]))
        state["step"], state["prev"] = counter(0, p, group), torch.zeros_like(p)
        grad: Any = p.grad
        state["step_size"] = torch.full_like(grad, complex(lr, lr) if p.is_complex() else lr)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return "prev", "step_size"

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> None:
        count(state)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return *group["etas"], *group["step_sizes"], 0.0, 1.0, group["maximize"]


rprop = functional(Rprop, "rprop", ["prev", "step_size", "step"])
