"""`apply_`, `map_`, `map2_`: a Python function for every element. Slow, as in PyTorch, and not recorded."""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.dispatch.inplace import check_no_overlap
from tensorgrad.dispatch.kinds import composite
from tensorgrad.errors import check_number
from tensorgrad.ops.copy import check_broadcast
from tensorgrad.ops.create import wrapped
from tensorgrad.tensor import Tensor


@composite("method")
def apply_(self: Tensor, callable) -> Tensor:
    """Replaces each element by the result of `callable`, which maps a Python number to a Python number.

    Raises:
        RuntimeError: If the tensor requires grad.
        TypeError: If the tensor is not on the CPU, or a result is not a number.

    >>> torch.tensor([1.0, 4.0]).apply_(lambda v: v + 10)
    tensor([11., 14.])
    """
    return _rewrite("apply_", self, (), callable)


@composite("method")
def map_(self: Tensor, other: Tensor, callable) -> Tensor:
    """Replaces each element by `callable` of it and the element of `other`, which broadcasts and has the same dtype.

    >>> torch.tensor([1.0, 4.0]).map_(torch.tensor([2.0, 3.0]), max)
    tensor([2., 4.])
    """
    _check_operand("map_", "other", 1, self, other, "'other'")
    return _rewrite("map_", self, (other,), callable)


@composite("method")
def map2_(self: Tensor, x: Tensor, y: Tensor, callable) -> Tensor:
    """Replaces each element by `callable` of it and the elements of `x` and `y`.

    >>> torch.tensor([1.0, 4.0]).map2_(torch.tensor(2.0), torch.tensor(3.0), max)
    tensor([3., 4.])
    """
    _check_operand("map2_", "x", 1, self, x, "argument 'x'")
    _check_operand("map2_", "y", 2, self, y, "argument 'y'")
    return _rewrite("map2_", self, (x, y), callable)


def _check_operand(name: str, argument: str, position: int, self: Tensor, value, wanted: str) -> None:
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {kind}")
    if value.dtype is not self.dtype or value.device != self.device:
        raise TypeError(f"{name}: expected {self.type()} for {wanted} (got {value.type()})")


def _rewrite(name: str, self: Tensor, others: tuple, function) -> Tensor:
    """Writes `function` of the elements, one by one in row-major order."""
    if any(t.requires_grad for t in (self, *others)):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if self.is_meta:
        return self
    if not self.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if not callable(function):
        raise TypeError(f"'{type(function).__name__}' object is not callable")
    check_no_overlap(self)
    array = self._array
    for t in others:
        check_broadcast(t._array.shape, array.shape)
    number = _converter(self)
    columns = (t.expand(array.shape).reshape(-1).tolist() for t in (self, *others))
    results = [number(function(*values)) for values in zip(*columns, strict=True)]
    self._storage.bump()
    with np.errstate(all="ignore"):
        self._storage.write(array, np.array(results, np.result_type(array.dtype, np.int8)).reshape(array.shape))
    return self


def _converter(tensor: Tensor):
    """Returns a function that converts a result to a number for an element. It raises TypeError if the result is not a
    number, RuntimeError for an integer that the dtype cannot hold."""
    dtype = tensor.dtype
    if dtype.is_complex:
        return complex
    if dtype.is_floating_point:
        return lambda value: math.ldexp(value, 0)  # unlike float(value), rejects strings
    if dtype.name == "bool":
        return bool

    def integer(value):
        value = math.trunc(value)
        check_number(value, dtype)
        return wrapped(value, dtype)

    return integer
