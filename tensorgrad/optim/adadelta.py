"""Adadelta."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_lr
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import counts_and_zeros

__all__ = ["Adadelta", "adadelta"]


class Coefficients(NamedTuple):
    """The coefficients of all steps."""

    lr: float
    rho: float
    take: float  # 1 - rho
    eps: float
    decay: float | None  # weight_decay, unless that is 0
    maximize: bool


class Adadelta(Elementwise):
    """Moves each element by g · √(u + eps) / √(v + eps), which has the units of the parameter.

    v = rho · v + (1 - rho) g² is the mean squared gradient, and u = rho · u + (1 - rho) d² the mean square of the
    changes d = g · √(u + eps) / √(v + eps); p -= lr · d (Zeiler, 2012, *ADADELTA: An Adaptive Learning Rate Method*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the factor on the change; 1 in the paper.
        rho: the fraction of the means that is kept in each step.
        eps: makes the first changes nonzero, and prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        foreach: accepted and ignored: there is only one implementation.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is out of range.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adadelta([w], eps=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.2929, 0.2929], requires_grad=True)
    """

    _flags = flags.ADADELTA

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

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        return counts_and_zeros(group, "square_avg", "acc_delta")

    @staticmethod
    def _coefficients(group: dict[str, Any]) -> Coefficients:
        rho = group["rho"]
        return Coefficients(group["lr"], rho, 1 - rho, group["eps"], group["weight_decay"] or None, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, square_avg: Any, acc_delta: Any, n: Coefficients, s: Any, r: Any) -> None:
        v, u = square_avg, acc_delta
        g = descent(xp, x, g, n, s, r)
        xp.multiply(xp.multiply(g, g, s), n.take, s)
        xp.add(xp.multiply(v, n.rho, v), s, v)  # v = rho · v + (1 - rho) g²
        xp.divide(g, xp.sqrt(xp.add(v, n.eps, s), s), r)
        d = xp.multiply(r, xp.sqrt(xp.add(u, n.eps, s), s), r)  # d = g · √(u + eps) / √(v + eps)
        xp.multiply(xp.multiply(d, d, s), n.take, s)
        xp.add(xp.multiply(u, n.rho, u), s, u)  # u = rho · u + (1 - rho) d²
        xp.subtract(x, xp.multiply(d, n.lr, d), x)  # p -= lr · d


adadelta = functional(Adadelta, "adadelta", ["square_avg", "acc_delta", "step"])
