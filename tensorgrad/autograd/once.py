"""Custom functions of older kinds: with a backward pass that cannot itself be differentiated, and written in place."""

from __future__ import annotations

import functools

from tensorgrad.autograd import modes
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.modes import GRAD
from tensorgrad.tensor import Tensor


def once_differentiable(function):
    """Decorates a `backward` that cannot itself be differentiated: doing so raises, instead of being silently wrong."""

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
    """Passes a value on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx, value, *others):
        return value

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """`Function` under an older name, for those that write to their inputs. `inplace` is only remembered."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace
