"""RMSprop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_lr, count, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["RMSprop", "rmsprop"]


def _rmsprop(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, v, mean, buffer), (s, t) = arrays, scratch
    lr, eps, decay, momentum, keep, take, maximize = constants
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.multiply(g, g, s)
    xp.multiply(s, take, s)
    xp.multiply(v, keep, v)
    xp.add(v, s, v)
    if mean is not None:
        xp.subtract(g, mean, s)
        xp.add(mean, xp.multiply(s, take, s), mean)
        xp.multiply(mean, mean, s)
        v = xp.subtract(v, s, s)
    xp.sqrt(v, s)
    xp.add(s, eps, s)
    xp.divide(g, s, s)
    if buffer is not None:
        xp.multiply(buffer, momentum, buffer)
        s = xp.add(buffer, s, buffer)
    xp.subtract(x, xp.multiply(s, lr, t), x)


class RMSprop(Elementwise):
    """Divides each element's gradient by the root of its mean square: p -= lr · g / (√v + eps).

    v = alpha · v + (1 - alpha) g² (Hinton, 2012, *Neural Networks for Machine Learning*, lecture 6e).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        alpha: how much of v is kept.
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        momentum: move along b = momentum · b + g / (√v + eps).
        centered: subtract the square of the mean gradient from v, which makes it a variance (Graves, 2013, *Generating
            Sequences With Recurrent Neural Networks*).
        capturable: accepted where PyTorch does, on CUDA.
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a negative setting.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.RMSprop([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([5.9605e-08, 5.9605e-08], requires_grad=True)
    """

    _move = staticmethod(_rmsprop)
    scratch = 2
    timeless = True
    older: ClassVar = {
        "momentum": 0, "centered": False, "foreach": None, "maximize": False, "differentiable": False,
        "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check("epsilon value", eps, eps >= 0.0)
        check("momentum value", momentum, momentum >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        check("alpha value", alpha, alpha >= 0.0)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group)
        state["square_avg"] = torch.zeros_like(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = torch.zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        mean = "grad_avg" if group["centered"] else None
        return "square_avg", mean, "momentum_buffer" if group["momentum"] > 0 else None

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> None:
        count(state)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        alpha, decay = group["alpha"], group["weight_decay"] or None
        return read(group["lr"]), group["eps"], decay, group["momentum"], alpha, 1 - alpha, group["maximize"]


rmsprop = functional(RMSprop, "rmsprop", ["square_avg", "grad_avg", "momentum_buffer", "step"])
