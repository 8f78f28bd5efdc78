"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_lr
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.optim.settings import as_scalar
from tensorgrad.optim.state import count, rounded, starts_at

__all__ = ["ASGD", "asgd"]


class Coefficients(NamedTuple):
    """The coefficients of a step."""

    eta: float
    shrink: float  # 1 - lambd · η
    mu: float | None  # the weight of the new p in the average, unless that is 1
    decay: float | None  # weight_decay, unless that is 0
    maximize: bool


class ASGD(Elementwise):
    """Gradient descent that also computes the average of the parameters over the steps, in its state `"ax"`.

    p = (1 - lambd · η) p - η g, where η = lr / (1 + lambd · lr · t)^alpha decreases from step to step. After `t0`
    steps, each new p has the weight 1 / (t - t0) in the average; before, the average is p (Polyak and Juditsky, 1992,
    *Acceleration of stochastic approximation by averaging*; the schedule is that of Bottou, 2010).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        lambd: how fast the rate decays, and how much the parameters shrink.
        alpha: the exponent of the decay.
        t0: the step after which averaging starts.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.
        capturable: accepted for parameters on CUDA, as in PyTorch.

    Raises:
        ValueError: a setting is negative.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.ASGD([w], lr=0.25, lambd=0, t0=0)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w, optimizer.state[w]["ax"]
    (tensor([0.1250, 0.1250], requires_grad=True), tensor([0.1875, 0.1875]))
    """

    _flags = flags.ASGD

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

    _counted_on_device = None  # a branch depends on the number of steps

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        lr = as_scalar(group["lr"])
        starts = {"step": 0, "eta": lr, "mu": 1}
        return {k: starts_at(v, group, on_device=True) for k, v in starts.items()} | {"ax": torch.zeros_like}

    @staticmethod
    def _count(state: dict[str, Any], group: dict[str, Any]) -> tuple[float, float]:
        """Counts the step. Returns this step's η and μ, and stores those of the next step."""
        eta, mu = state["eta"], state["mu"]
        now = eta.item(), mu.item()
        t, lr = count(state), as_scalar(group["lr"])
        # Rounded explicitly: loading a checkpoint gives the tensor the parameter's dtype.
        eta.fill_(rounded(lr / (1 + group["lambd"] * lr * t) ** group["alpha"]))
        mu.fill_(1 / max(1, t - group["t0"]))
        return now

    @staticmethod
    def _coefficients(group: dict[str, Any], eta_and_mu: tuple[float, float]) -> Coefficients:
        eta, mu = eta_and_mu
        shrink, decay = 1 - group["lambd"] * eta, group["weight_decay"] or None
        return Coefficients(eta, shrink, None if mu == 1 else mu, decay, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, ax: Any, n: Coefficients, s: Any, r: Any) -> None:
        g = descent(xp, x, g, n, s, r)
        xp.subtract(xp.multiply(x, n.shrink, x), xp.multiply(g, n.eta, s), x)  # p = (1 - lambd · η) p - η g
        if n.mu is None:
            xp.copyto(ax, x)
        else:  # ax = (1 - μ) ax + μ p
            xp.add(ax, xp.multiply(xp.subtract(x, ax, s), n.mu, s), ax)


asgd = functional(ASGD, "asgd", ["ax", "mu", "eta", "step"])
