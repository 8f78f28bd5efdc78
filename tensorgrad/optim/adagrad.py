"""Adagrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import tensorgrad as torch
from tensorgrad.optim.elementwise import Elementwise, check, check_lr, counter, descent
from tensorgrad.optim.functional import functional
from tensorgrad.tensor import Tensor

__all__ = ["Adagrad", "adagrad"]


def _adagrad(xp: Any, x: Any, arrays: Any, scratch: Any, constants: tuple) -> None:
    (g, total), (s, t) = arrays, scratch
    rate, eps, decay, maximize = constants
    g = descent(xp, x, g, decay, maximize, s, t)
    xp.add(total, xp.multiply(g, g, s), total)
    xp.add(xp.sqrt(total, s), eps, s)
    xp.divide(g, s, s)
    xp.subtract(x, xp.multiply(s, rate, s), x)


class Adagrad(Elementwise):
    """Divides each element's gradient by the root of the sum of its squares: p -= rate · g / (√(Σ g²) + eps).

    rate = lr / (1 + (t - 1) · lr_decay) in step t (Duchi, Hazan and Singer, 2011, *Adaptive Subgradient Methods for
    Online Learning and Stochastic Optimization*).

    Args:
        params: what to optimize, see :class:`~tensorgrad.optim.Optimizer`.
        lr: the learning rate.
        lr_decay: how fast the rate falls.
        weight_decay: adds weight_decay · p to the gradient (an L2 penalty).
        initial_accumulator_value: where the sums start.
        eps: keeps the division finite.
        foreach, fused: accepted and ignored: there is one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd look through the step.

    Raises:
        ValueError: a negative setting.

    >>> import tensorgrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Adagrad([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    _move = staticmethod(_adagrad)
    scratch = 2
    older: ClassVar = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

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
            for p in group["params"]:
                self._begin(self.state[p], p, group)

    def share_memory(self) -> None:
        """Moves the sums to memory that other processes can share. Raises: see ``Tensor.share_memory_``."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _begin(self, state: dict[str, Any], p: Tensor, group: dict[str, Any]) -> None:
        start: complex = self.defaults["initial_accumulator_value"]
        state["step"] = counter(0, p, group)
        state["sum"] = torch.full_like(p, complex(start, start) if p.is_complex() else start)

    def _names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("sum",)

    def _moving(self, time: float, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return (read(group["lr"]) / (1 + (time - 1) * group["lr_decay"]),)

    def _fixed(self, group: dict[str, Any], read: Callable[[Any], Any]) -> tuple:
        return group["eps"], group["weight_decay"] or None, group["maximize"]


adagrad = functional(Adagrad, "adagrad", ["sum", "step"])
