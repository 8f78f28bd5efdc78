"""RMSprop."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_lr
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import counts_and_zeros

__all__ = ["RMSprop", "rmsprop"]


class Coefficients(NamedTuple):
    """The coefficients of all steps."""

    lr: float
    eps: float
    decay: float | None  # weight_decay, unless that is 0
    momentum: float
    alpha: float
    take: float  # 1 - alpha
    maximize: bool


class RMSprop(Elementwise):
    """Divides each element's gradient by the root of its mean square: p -= lr · g / (√v + eps).

    v = alpha · v + (1 - alpha) g² (Hinton, 2012, *Neural Networks for Machine Learning*, lecture 6e).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        alpha: the fraction of v that is kept in each step.
        eps: prevents division by zero.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        momentum: move along b = momentum · b + g / (√v + eps).
        centered: subtract the square of the mean gradient from v, which makes it a variance (Graves, 2013, *Generating
            Sequences With Recurrent Neural Networks*).
        capturable: accepted for parameters on CUDA, as in PyTorch.
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is negative.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.RMSprop([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([5.9605e-08, 5.9605e-08], requires_grad=True)
    """

    _flags = flags.RMSPROP

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

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        momentum = ["momentum_buffer"] if group["momentum"] > 0 else []
        centered = ["grad_avg"] if group["centered"] else []
        return counts_and_zeros(group, "square_avg", *momentum, *centered)

    @staticmethod
    def _coefficients(group: dict[str, Any]) -> Coefficients:
        alpha, decay = group["alpha"], group["weight_decay"] or None
        return Coefficients(group["lr"], group["eps"], decay, group["momentum"], alpha, 1 - alpha, group["maximize"])

    @staticmethod
    def _update(
        xp: Any, x: Any, g: Any, square_avg: Any, grad_avg: Any, momentum_buffer: Any, n: Coefficients, s: Any, r: Any
    ) -> None:
        v, mean, b = square_avg, grad_avg, momentum_buffer
        g = descent(xp, x, g, n, s, r)
        xp.multiply(xp.multiply(g, g, s), n.take, s)
        xp.add(xp.multiply(v, n.alpha, v), s, v)  # v = alpha · v + (1 - alpha) g²
        if mean is not None:
            xp.add(mean, xp.multiply(xp.subtract(g, mean, s), n.take, s), mean)
            v = xp.subtract(v, xp.multiply(mean, mean, s), s)  # the variance
        d = xp.divide(g, xp.add(xp.sqrt(v, s), n.eps, s), s)
        if b is not None:
            d = xp.add(xp.multiply(b, n.momentum, b), d, b)  # b = momentum · b + g / (√v + eps)
        xp.subtract(x, xp.multiply(d, n.lr, r), x)  # p -= lr · g / (√v + eps)


rmsprop = functional(RMSprop, "rmsprop", ["square_avg", "grad_avg", "momentum_buffer", "step"])
