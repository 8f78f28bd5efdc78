"""Adagrad."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tensorgrad as torch
from tensorgrad.optim import flags
from tensorgrad.optim.checks import check, check_lr
from tensorgrad.optim.elementwise import Elementwise, descent
from tensorgrad.optim.functional import functional
from tensorgrad.optim.state import begin, starts_at
from tensorgrad.tensor import Tensor

__all__ = ["Adagrad", "adagrad"]


class Coefficients(NamedTuple):
    """The coefficients of a step."""

    rate: float
    eps: float
    decay: float | None  # weight_decay, unless that is 0
    maximize: bool


class Adagrad(Elementwise):
    """Divides each element's gradient by the root of the sum of its squares: p -= rate · g / (√(Σ g²) + eps).

    rate = lr / (1 + (t - 1) · lr_decay) in step t (Duchi, Hazan and Singer, 2011, *Adaptive Subgradient Methods for
    Online Learning and Stochastic Optimization*).

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        lr_decay: how fast the rate decays.
        weight_decay: adds weight_decay · p to the gradient (L2 regularization).
        initial_accumulator_value: the initial value of the sums.
        eps: prevents division by zero.
        foreach, fused: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: a setting is negative.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adagrad([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _flags = flags.ADAGRAD

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check("lr_decay value", lr_decay, lr_decay >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        check("initial_accumulator_value value", initial_accumulator_value, initial_accumulator_value >= 0.0)
        check("epsilon value", eps, eps >= 0.0)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            starts = self._initial_state(group)
            for p in group["params"]:
                begin(self.state[p], p, starts)

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        def sum_at_start(p: Tensor) -> Tensor:
            start: complex = self.defaults["initial_accumulator_value"]
            return torch.full_like(p, complex(start, start) if p.is_complex() else start)

        return {"step": starts_at(0, group), "sum": sum_at_start}

    def _step_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        from tensorgrad.optim.sparse_rows import move, stored

        state = self.state[p]
        n = self._coefficients(group, self._count(state, group))
        place, g = stored(grad)
        move(state["sum"], place, g * g)
        change = g / (np.sqrt(state["sum"]._array[place]) + n.eps) * float(n.rate)
        move(p, place, change if n.maximize else -change)

    @staticmethod
    def _coefficients(group: dict[str, Any], t: float) -> Coefficients:
        rate = group["lr"] / (1 + (t - 1) * group["lr_decay"])
        return Coefficients(rate, group["eps"], group["weight_decay"] or None, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, sum: Any, n: Coefficients, s: Any, r: Any) -> None:
        g = descent(xp, x, g, n, s, r)
        xp.add(sum, xp.multiply(g, g, s), sum)
        xp.divide(g, xp.add(xp.sqrt(sum, s), n.eps, s), s)
        xp.subtract(x, xp.multiply(s, n.rate, s), x)  # p -= rate · g / (√(Σ g²) + eps)

    def share_memory(self) -> None:
        """Moves the sums to memory shared with other processes. Raises the errors of `Tensor.share_memory_`."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()


adagrad = functional(Adagrad, "adagrad", ["sum", "step"])
