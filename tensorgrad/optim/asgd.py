"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_lr, count, counter, descent, number, single
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["ASGD", "asgd"]


def _asgd(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, mean), (s, t) = arrays, scratch
    rate, shrink, part, decay, maximize = constants
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.multiply(x, shrink, x)
    xp.subtract(x, xp.multiply(g, rate, s), x)
    if part is None:
        xp.copyto(mean, x)
    else:
        xp.subtract(x, mean, s)
        xp.add(mean, xp.multiply(s, part, s), mean)


class ASGD(Elementwise):
    """Gradient descent that also keeps the average of where it has been, in its state ``"ax"``.

    p = (1 - lambd · η) p - η g, where η = lr / (1 + lambd · lr · t)^alpha falls from step to step; after ``t0`` steps
    the average takes 1 / (t - t0) of each new p, before that it is p (Polyak and Juditsky, 1992, *Acceleration of
    stochastic approximation by averaging*; the schedule is that of Bottou, 2010).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        lambd: how fast the rate falls, and how much the parameters shrink.
        alpha: the power of the rate's fall.
        t0: when averaging starts.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        foreach: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.
        capturable: accepted where PyTorch does, on CUDA.

    Raises:
        ValueError: a negative setting.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.ASGD([w], lr=0.25, lambd=0, t0=0)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w, optimizer.state[w]["ax"]
    (tensor([0.1250, 0.1250], requires_grad=True), tensor([0.1875, 0.1875]))
    """

    _move = staticmethod(_asgd)
    scratch = 2
    counters = ("step", "eta", "mu")
    counted = "params, mus, etas, and state_steps"
    older: ClassVar = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        state["step"] = counter(0, p, group, here=True)
        state["eta"] = counter(number(group["lr"]), p, group, here=True)
        state["mu"] = counter(1, p, group, here=True)
        state["ax"] = torch.zeros_like(p)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("ax",)

    def _time(self, state: dict[str, Any], group: dict[str, Any], fresh: bool) -> tuple[float, float]:
        eta, mu = state["eta"], state["mu"]
        time = eta.item(), mu.item()
        step, lr = count(state), number(group["lr"])
        # Rounded even where a checkpoint was loaded, which makes the dtype that of the parameter.
        eta.fill_(single(lr / (1 + group["lambd"] * lr * step) ** group["alpha"]))
        mu.fill_(1 / max(1, step - group["t0"]))
        return time

    def _moving(self, time: tuple[float, float], group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        eta, mu = time
        return eta, 1 - group["lambd"] * eta, None if mu == 1 else mu

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return group["weight_decay"] or None, group["maximize"]


asgd = functional(ASGD, "asgd", ["ax", "mu", "eta", "step"])
