"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_fused, check_lr, number, scalars


class SGD(Elementwise):
    """Moves each parameter against its gradient: p -= lr · g; with momentum, against a decaying sum of gradients.

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        momentum: how much of the sum is kept: b = momentum · b + (1 - dampening) · g; the first b is g.
        dampening: see there.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        nesterov: move along g + momentum · b instead of b (Sutskever et al., 2013).
        maximize: move along the gradient instead of against it.
        foreach, fused: accepted and ignored: there is one implementation.
        differentiable: must be false.

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

    scratch = 2

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check("momentum value", momentum, momentum >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(fused, foreach)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("nesterov", False), ("maximize", False), ("foreach", None), ("fused", False)):
                group.setdefault(name, default)

    def _update(self, i: int, group: dict[str, Any]) -> None:
        momentum, maximize, nesterov = group["momentum"], group["maximize"], group["nesterov"]
        settings = number(group["lr"]), number(group["weight_decay"]), momentum, 1 - group["dampening"]
        constants = self._constants_of(i, (*settings, maximize, nesterov))
        buffer, fresh = None, False
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            if momentum:
                state = self.state[p]
                kept = state.get("momentum_buffer")
                fresh = kept is None
                if fresh:
                    kept = state["momentum_buffer"] = torch.empty_like(grad)
                buffer = kept._array
            x = p._array
            numbers = constants.get(x.dtype)
            if numbers is None:
                lr, decay, keep, take = scalars(x, *settings)
                decay, take = decay if settings[1] else None, take if settings[3] != 1 else None
                numbers = constants[x.dtype] = (lr, decay, keep, take, maximize, nesterov)
            self._advance(_sgd, p, (grad._array, buffer), (*numbers, fresh))


def _sgd(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    """x -= lr · direction. ``decay`` and ``take`` (1 - dampening) are ``None`` where they change nothing."""
    (g, buffer), (s, t) = arrays, scratch
    lr, decay, momentum, take, maximize, nesterov, fresh = constants
    if maximize:
        g = xp.negative(g, s)
    if decay is not None:
        g = xp.add(g, xp.multiply(x, decay, t), s)
    if buffer is not None:
        if fresh:
            buffer[...] = g
        else:
            xp.multiply(buffer, momentum, buffer)
            xp.add(buffer, g if take is None else xp.multiply(g, take, t), buffer)
        g = xp.add(g, xp.multiply(buffer, momentum, t), s) if nesterov else buffer
    xp.subtract(x, xp.multiply(g, lr, t), x)
