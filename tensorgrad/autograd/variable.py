"""`autograd.Variable`: since PyTorch 0.4 another way to create a tensor."""

from __future__ import annotations

from tensorgrad.autograd import passes
from tensorgrad.tensor import Tensor


class _IsTensor(type):
    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, Tensor)


class ImperativeEngine:
    """The engine functions that PyTorch programs call through `Variable._execution_engine`."""

    queue_callback = staticmethod(passes.queue_callback)
    is_checkpoint_valid = staticmethod(passes.is_checkpoint_valid)


class Variable(metaclass=_IsTensor):
    """`Variable(tensor, requires_grad)` is the tensor, detached; every tensor is an instance of it.

    Args:
        data: a tensor.
        volatile: of PyTorch before 0.4; it has no effect.

    >>> x = torch.autograd.Variable(torch.ones(2), requires_grad=True)
    >>> x
    tensor([1., 1.], requires_grad=True)
    >>> isinstance(x, torch.autograd.Variable)
    True
    """

    _execution_engine = ImperativeEngine()

    def __new__(cls, data, requires_grad: bool = False, volatile: bool = False):
        return data.detach().requires_grad_(requires_grad)
