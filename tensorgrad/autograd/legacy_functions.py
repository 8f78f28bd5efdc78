"""Legacy custom functions: those whose backward cannot be differentiated, and those that write in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorgrad.autograd import modes
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import Tensor


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that cannot be differentiated: trying to raises an error, so it cannot go unnoticed."""

    @functools.wraps(function)
    def wrapper(ctx, *grads):
        recording = GRAD.enabled
        with modes.no_grad():
            results = function(ctx, *grads)
        if not recording or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return results
        several = isinstance(results, tuple)
        results = tuple(_Refusal.apply(r, *[g for g in grads if isinstance(g, Tensor)]) if isinstance(r, Tensor) else r
                        for r in (results if several else (results,)))  # fmt: skip
        return results if several else results[0]

    return wrapper


class _Refusal(Function):
    """Returns its input; differentiating it raises an error."""

    @staticmethod
    def forward(ctx, value, *others):
        return value

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """`Function` under an older name, for functions that modify their inputs. `inplace` is stored without effect."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace
