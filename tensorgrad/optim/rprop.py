"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.optim import flags
from tensorgrad.optim.checks import check_lr
from tensorgrad.optim.elementwise import Elementwise
from tensorgrad.optim.functional import functional
from tensorgrad.optim.settings import as_scalar
from tensorgrad.optim.state import starts_at
from tensorgrad.system import numpy_faults
from tensorgrad.tensor import Tensor

__all__ = ["Rprop", "rprop"]


class Coefficients(NamedTuple):
    """The coefficients of all steps."""

    shrink: float  # the factor on a step size after a change of sign
    grow: float  # the factor otherwise
    least: float
    most: float
    zero: float
    one: float
    maximize: bool


class Rprop(Elementwise):
    """Moves each element by its own step size; only the sign of the gradient is used.

    The step size is multiplied by `etas[1]` while the gradient keeps its sign. If the sign changes, it is multiplied
    by `etas[0]`, and the element does not move in this step (Riedmiller and Braun, 1993, *A direct adaptive method
    for faster backpropagation learning*). Use full batches: the signs of mini-batch gradients are mostly noise.

    Args:
        params: the parameters to optimize, see `tensorgrad.optim.Optimizer`.
        lr: the initial step size.
        etas: the factors on the step size after a change of sign, and otherwise.
        step_sizes: the minimum and the maximum step size.
        capturable: accepted for parameters on CUDA, as in PyTorch.
        foreach: accepted and ignored: there is only one implementation.
        maximize: move along the gradient instead of against it.
        differentiable: let autograd differentiate through the step.

    Raises:
        ValueError: the learning rate is negative, or 0 < etas[0] < 1 < etas[1] is violated.

    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.Rprop([w], lr=0.5)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     w.sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([-0.1000, -0.1000], requires_grad=True)
    """

    _flags = flags.RPROP

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

    def _initial_state(self, group: dict[str, Any]) -> dict[str, Any]:
        def step_size(p: Tensor) -> Tensor:
            lr, grad = float(as_scalar(group["lr"])), p.grad
            assert grad is not None
            return torch.full_like(grad, complex(lr, lr) if p.is_complex() else lr)

        return {"step": starts_at(0, group), "prev": torch.zeros_like, "step_size": step_size}

    @staticmethod
    def _coefficients(group: dict[str, Any]) -> Coefficients:
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        return Coefficients(shrink, grow, least, most, 0.0, 1.0, group["maximize"])

    @staticmethod
    def _update(xp: Any, x: Any, g: Any, prev: Any, step_size: Any, n: Coefficients, s: Any, r: Any) -> None:
        if n.maximize:
            g = numpy_faults.negative(xp, g, r)
        xp.sign(xp.multiply(g, prev, s), s)
        turned, still, straight = xp.less(s, n.zero), xp.equal(s, n.zero), xp.greater(s, n.zero)
        for factor, where in ((n.shrink, turned), (n.one, still), (n.grow, straight)):  # NaN remains NaN
            xp.copyto(s, factor, where=where)
        xp.clip(xp.multiply(step_size, s, step_size), n.least, n.most, step_size)
        xp.copyto(prev, g)
        xp.copyto(prev, n.zero, where=turned)  # these elements do not move
        xp.subtract(x, xp.multiply(xp.sign(prev, s), step_size, s), x)  # p -= sign(g) · step_size


rprop = functional(Rprop, "rprop", ["prev", "step_size", "step"])
