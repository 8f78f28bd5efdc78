"""The memory order of results: CuPy's are in the order of rows; NumPy's and PyTorch's in that of their operands."""

from __future__ import annotations

from functools import wraps

import cupy

from tensorgrad.kernels.cuda.pointwise import order_of
from tensorgrad.layouts import inverse


def keeping(function, inputs: int):
    """Makes an elementwise function of CuPy keep the memory order of its first `inputs` arguments.

    Images whose channels lie innermost, for example, stay such images.
    """

    @wraps(function)
    def run(*args, **kwargs):
        for x in args[:inputs]:
            if x.__class__ is cupy.ndarray and not x._c_contiguous:
                return _reordered(function, inputs, args, kwargs)
        return function(*args, **kwargs)

    return run


def _reordered(function, inputs: int, args: tuple, kwargs: dict):
    """Calls a function with its operands' dimensions from the largest stride to the smallest."""
    arrays = [x for x in args[:inputs] if x.__class__ is cupy.ndarray]
    dims = max(x.ndim for x in arrays)
    order = order_of(arrays, dims)
    if len(args) > inputs or "out" in kwargs or order == list(range(dims)):
        return function(*args, **kwargs)

    def turned(x):
        if x.__class__ is not cupy.ndarray or not x.ndim:
            return x
        return (x if x.ndim == dims else x.reshape((1,) * (dims - x.ndim) + x.shape)).transpose(order)

    made, back = function(*map(turned, args), **kwargs), inverse(order)
    return tuple([part.transpose(back) for part in made]) if made.__class__ is tuple else made.transpose(back)
