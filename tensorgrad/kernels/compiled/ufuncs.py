"""NumPy's own elementwise functions, shared by threads: each computes a range, without holding a lock.

A single NumPy thread adds as fast as memory allows, so there is nothing to compile for operands of one shape. Operands
of float32 that broadcast use the compiled loop of `broadcast`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.settings import get_num_threads
from tensorgrad.storage.fresh import LARGE, fresh

_BOOL = np.dtype(bool)

# op -> NumPy's function, and an element's cost, relative to an addition in the cache
UNARY: dict[str, tuple[Any, float]] = {
    "neg": (np.negative, 0.25), "abs": (np.absolute, 0.25), "sqrt": (np.sqrt, 1.0), "reciprocal": (np.reciprocal, 0.5),
    "log": (np.log, 1.0), "log2": (np.log2, 1.0), "log10": (np.log10, 2.0), "log1p": (np.log1p, 8.0),
    "expm1": (np.expm1, 8.0), "exp2": (np.exp2, 2.0), "tanh": (np.tanh, 1.0), "sin": (np.sin, 1.0),
    "cos": (np.cos, 1.0), "logical_not": (np.logical_not, 0.125),
}  # fmt: skip
BINARY: dict[str, tuple[Any, float]] = {
    "add": (np.add, 0.25), "sub": (np.subtract, 0.25), "mul": (np.multiply, 0.25), "div": (np.true_divide, 0.25),
    "maximum": (np.maximum, 0.25), "minimum": (np.minimum, 0.25),
    "eq": (np.equal, 0.25), "ne": (np.not_equal, 0.25), "lt": (np.less, 0.25), "le": (np.less_equal, 0.25),
    "gt": (np.greater, 0.25), "ge": (np.greater_equal, 0.25),
    "logical_and": (np.logical_and, 0.125), "logical_or": (np.logical_or, 0.125),
}  # fmt: skip
_STRETCH = 8192  # elements that stay in the first-level cache between two functions
_LARGEST = 3e38  # numbers below are finite in float32
_WORTH = 65536  # elements of two arrays from which on two threads are faster than one (measured)
_TRUTHS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"}


def _range_of_one(function, x, out, first, last):
    function(x[first:last], out=out[first:last])


def _range_of_two(function, x, y, out, first, last):
    function(x[first:last], y[first:last], out=out[first:last])


def _range_with_number(function, x, number, out, first, last):
    function(x[first:last], number, out=out[first:last])


def real(array: Any) -> bool:
    """Returns whether it is an array without gaps, of booleans or of a floating-point dtype that NumPy computes in."""
    dtype = array.dtype
    return (
        array.__class__ is np.ndarray
        and array.flags.c_contiguous
        and ((dtype.kind == "f" and dtype.itemsize > 2) or dtype.kind == "b")
    )


def _output(x, out, truth: bool):
    """Returns the flat array that receives the results; None if there is none."""
    if out is None:
        return fresh(x.size, _BOOL if truth else x.dtype)
    if out is x or (out.shape == x.shape and out.dtype is x.dtype and out.flags.c_contiguous and not truth):
        return out.reshape(-1)
    return None


def _unary(function, truth: bool, cost: float) -> Callable:
    def kernel(x, out=None):
        if not real(x) or (x.dtype is _BOOL) is not truth or get_num_threads() == 1:
            return NotImplemented
        to = _output(x, out, truth)
        if to is None or (out is not None and out is not x and np.may_share_memory(x, out)):
            return NotImplemented
        thread_pool.run(_range_of_one, x.size, (function, x.reshape(-1), to), int(x.size * cost))
        return to.reshape(x.shape) if out is None else out

    return kernel


@cache
def _binary(name: str, function, cost: float) -> Callable:
    from tensorgrad.kernels.compiled import broadcast

    truth, joined = name in _TRUTHS, broadcast.KERNELS[name]() if name in broadcast.KERNELS else None

    def kernel(x, y, out=None):
        number = y.__class__ is float or y.__class__ is int
        if number and joined is not None and out is None and not x.flags.c_contiguous and abs(y) < _LARGEST:
            y, number = np.array(y, F32), False  # the compiled loop passes from row to row at less cost
        if joined is not None and out is None and x.dtype is F32 and not number:
            # Compiled code shares at less cost; if there is nothing to share, NumPy's is as good.
            few = x.shape == y.shape and (x.size < _WORTH or get_num_threads() == 1) and x.strides == y.strides
            if few and x.size >= LARGE and x.flags.c_contiguous:
                return function(x, y, out=fresh(x.size, F32).reshape(x.shape))
            return NotImplemented if few else joined(x, y)
        if not real(x):
            return NotImplemented
        if number:
            share = _range_with_number
        elif y.shape == x.shape and y.dtype is x.dtype and real(y):
            share = _range_of_two
        else:
            return NotImplemented
        if get_num_threads() == 1 or (x.dtype is _BOOL and not truth):
            return NotImplemented
        to = _output(x, out, truth)
        if to is None or (out is not None and (overlap(out, x) or (not number and overlap(out, y)))):
            return NotImplemented
        thread_pool.run(
            share, x.size, (function, x.reshape(-1), y if number else y.reshape(-1), to), int(x.size * cost)
        )
        return to.reshape(x.shape) if out is None else out

    return kernel


def overlap(out, x) -> bool:
    """Returns whether writing to `out` may change unread elements of `x`: their memory overlaps with an offset."""
    return out is not x and np.may_share_memory(out, x) and out.ctypes.data != x.ctypes.data


def _cube(x, out):
    for at in range(0, x.size, _STRETCH):
        some = x[at : at + _STRETCH]
        np.multiply(np.multiply(some, some), some, out=out[at : at + _STRETCH])


def _power() -> Callable:
    square, root = _binary("mul", *BINARY["mul"]), _unary(np.sqrt, False, 1.0)
    cube = _unary(_cube, False, 0.5)

    def kernel(x, y, out=None):
        if y.__class__ is not float and y.__class__ is not int:
            return NotImplemented
        if y == 3:
            return cube(x, out)
        return square(x, x, out) if y == 2 else root(x, out) if y == 0.5 and x.dtype.kind == "f" else NotImplemented

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    **{name: (lambda f=f, c=c, n=name: _unary(f, n in _TRUTHS, c)) for name, (f, c) in UNARY.items()},  # type: ignore[misc]
    **{name: (lambda f=f, c=c, n=name: _binary(n, f, c)) for name, (f, c) in BINARY.items()},  # type: ignore[misc]
    "square": lambda: (lambda kernel: lambda x: kernel(x, x))(_binary("mul", *BINARY["mul"])),
    "pow": _power,
}
