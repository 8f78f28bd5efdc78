"""RMSprop."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.optim.adam import count
from tensorgrad.optim.elementwise import Elementwise, check, check_lr, number, scalars
from tensorgrad.tensor import Tensor


class RMSprop(Elementwise):
    """Divides each element's gradient by the root of its mean square: p -= lr · g / (√v + eps) (Hinton, 2012).

    v = alpha · v + (1 - alpha) g².

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        alpha: how much of v is kept.
        eps: keeps the division finite.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        momentum: move along b = momentum · b + g / (√v + eps).
        centered: subtract the square of the mean gradient from v, which makes it a variance (Graves, 2013).
        maximize: move along the gradient instead of against it.
        foreach: accepted and ignored: there is one implementation.
        capturable, differentiable: must be false.

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

    scratch = 2
    real = True

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

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("momentum", 0), ("centered", False), ("foreach", None), ("maximize", False)):
                group.setdefault(name, default)
            for p in group["params"]:
                kept = self.state.get(p)
                if kept and not isinstance(kept["step"], Tensor):
                    kept["step"] = torch.full((), float(kept["step"]))

    def _update(self, i: int, group: dict[str, Any]) -> None:
        momentum, centered, maximize = group["momentum"], group["centered"], group["maximize"]
        alpha, decay = group["alpha"], group["weight_decay"]
        settings = number(group["lr"]), group["eps"], decay, momentum, alpha, 1 - alpha
        constants = self._constants_of(i, settings)
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            x = p._array
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros(())
                state["square_avg"] = torch.zeros_like(p)
                if momentum > 0:
                    state["momentum_buffer"] = torch.zeros_like(p)
                if centered:
                    state["grad_avg"] = torch.zeros_like(p)
            count(state)
            numbers = constants.get(x.dtype)
            if numbers is None:
                lr, eps, shrink, *others = scalars(x, *settings)
                numbers = constants[x.dtype] = (lr, eps, shrink if decay else None, *others)
            mean = state["grad_avg"]._array if centered else None
            buffer = state["momentum_buffer"]._array if momentum > 0 else None
            arrays = grad._array, state["square_avg"]._array, mean, buffer
            self._advance(_rmsprop, p, arrays, (*numbers, maximize))


def _rmsprop(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, v, mean, buffer), (s, t) = arrays, scratch
    lr, eps, decay, momentum, keep, take, maximize = constants
    if maximize:
        g = xp.negative(g, t)
    if decay is not None:
        g = xp.add(g, xp.multiply(x, decay, s), t)
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
        xp.multiply(s, lr, t)
        xp.subtract(x, t, x)
    else:
        xp.multiply(s, lr, s)
        xp.subtract(x, s, x)
