"""`torch._C._functions`: the node classes by name, and functions that produce an undefined gradient or an error.

>>> x = torch.ones(2, requires_grad=True)
>>> isinstance(x.exp().grad_fn, torch._C._functions.ExpBackward0)
True
"""

from __future__ import annotations

from tensorgrad.autograd.function import Function
from tensorgrad.autograd.graph import AccumulateGrad, Node, class_named
from tensorgrad.autograd.views import CopySlices
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.system.lazy_modules import whole

__all__ = ["AccumulateGrad", "CopySlices", "DelayedError", "UndefinedGrad"]


class _Undefined(Function):
    @staticmethod
    def forward(ctx, *inputs):
        return inputs if len(inputs) > 1 else inputs[0]

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


class UndefinedGrad:
    """Returns its tensors; backward passes no gradient to them.

    >>> x = torch.ones(1, requires_grad=True)
    >>> torch._C._functions.UndefinedGrad()(x).backward()
    >>> print(x.grad)
    None
    """

    def __call__(self, *inputs):
        return _Undefined.apply(*inputs)


class _Failing(Function):
    @staticmethod
    def forward(ctx, message, *inputs):
        ctx.message = message
        return inputs if len(inputs) > 1 else inputs[0]

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(ctx.message)


class DelayedError:
    """Returns its tensors; a backward pass through them raises RuntimeError with the message.

    >>> x = torch.ones(1, requires_grad=True)
    >>> torch._C._functions.DelayedError("not here", 1)(x).backward()
    Traceback (most recent call last):
        ...
    RuntimeError: not here
    """

    def __init__(self, message: str, num_inputs: int):
        self.message, self.num_inputs = message, num_inputs

    def __call__(self, *inputs):
        if len(inputs) != self.num_inputs:
            raise RuntimeError(f"expected {self.num_inputs} inputs, got {len(inputs)}")
        return _Failing.apply(self.message, *inputs)


def _names() -> set[str]:
    return {op.backward_name for op in OPS.values() if op.wrt}


def __getattr__(name: str) -> type[Node]:
    if name in _names():
        return class_named(Node, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_names()})


whole(__name__)
