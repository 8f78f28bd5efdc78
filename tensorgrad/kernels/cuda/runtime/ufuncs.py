"""Methods of NumPy's ufuncs that CuPy lacks: `at` for every dtype, `accumulate`, `reduce` and `reduceat`.

Calls go to CuPy, through `order.py`. Scans double the distance at which they combine elements in each pass, so they
take log2(n) passes over the data (Hillis and Steele, "Data parallel algorithms", 1986).
"""

from __future__ import annotations

import cupy
import numpy as np

from tensorgrad.kernels.cuda.index import add_in_order
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.order import keeping
from tensorgrad.settings import SETTINGS

_REDUCE = {"maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
_ATOMIC = ("int32", "float16", "float32", "float64", "uint32", "uint64")  # dtypes that CuPy can add at indices
_WIDER = {
    "bool": "int32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "bfloat16": "float32",
}


def extended(name: str):
    """Returns CuPy's ufunc of this name with the methods that it lacks; it keeps the memory order of its operands."""
    ufunc = getattr(cupy, name)
    made = type(name, (_Ufunc,), {"__slots__": (), "__call__": staticmethod(keeping(ufunc, ufunc.nin))})
    return made(name, ufunc)


class _Ufunc:
    __slots__ = ("__name__", "ufunc")

    def __init__(self, name, ufunc):
        self.__name__, self.ufunc = name, ufunc

    def __getattr__(self, name):
        return getattr(self.ufunc, name)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        """Combines all elements along an axis."""
        method = _REDUCE.get(self.__name__)
        if method is None:
            return self.ufunc.reduce(array, axis, dtype, out, keepdims)
        return getattr(array, method)(axis, out=out, keepdims=keepdims)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        """Combines each element with all before it."""
        if self.__name__ in ("add", "multiply"):
            if array.dtype.itemsize != 2 or array.dtype.kind in "iu":
                return self.ufunc.accumulate(array, axis, dtype, out)
            # In single precision: CuPy does not scan bfloat16.
            made = self.ufunc.accumulate(array.astype(np.float32), axis).astype(dtype or array.dtype)
            if out is None:
                return made
            out[...] = made
            return out
        if dtype is not None or out is not None:
            raise NotImplementedError(f"{self.__name__}.accumulate supports neither dtype= nor out= on a GPU")
        out = cupy.moveaxis(array.copy(), axis, 0)
        step = 1
        while step < len(out):
            out[step:] = self.ufunc(out[step:], out[:-step])
            step *= 2
        return cupy.moveaxis(out, 0, axis)

    def reduceat(self, array, starts, axis=0):
        """Combines the elements from each start to the next; starts are increasing."""
        array = cupy.moveaxis(array, axis, 0)
        first = cupy.zeros(len(array), np.int64)
        first[starts] = 1
        ends = cupy.append(starts[1:], len(array)) - 1
        return cupy.moveaxis(self._by_runs(array, cupy.cumsum(first))[ends], 0, axis)

    def _by_runs(self, values, runs):
        """Combines each value along the first axis with all before it that have the same number in `runs`."""
        values, step = values.copy(), 1
        shape = (-1,) + (1,) * (values.ndim - 1)
        while step < len(values):
            same = (runs[step:] == runs[:-step]).reshape(shape)
            values[step:] = cupy.where(same, self.ufunc(values[step:], values[:-step]), values[step:])
            step *= 2
        return values

    def at(self, array, indices, values):
        """Computes `array[indices] = ufunc(array[indices], values)`, where an index may occur more than once."""
        values = cupy.asarray(values, array.dtype)
        if self.__name__ == "add":
            _add_at(array, indices, values)
        else:
            self._sorted_at(array, indices, values)

    def _sorted_at(self, array, indices, values):
        flat = array.reshape(-1)
        places = cupy.arange(flat.size).reshape(array.shape)[indices]
        if not places.size:
            return
        values = cupy.broadcast_to(values, places.shape).reshape(-1)
        places = places.reshape(-1)
        order = cupy.argsort(places)
        places = places[order]
        last = cupy.ones(places.size, bool)
        cupy.not_equal(places[1:], places[:-1], out=last[:-1])
        combined = self._by_runs(values[order], places)[last]
        places = places[last]
        flat[places] = self.ufunc(flat[places], combined)
        if not array.flags.c_contiguous:  # then `flat` was a copy
            array[...] = flat.reshape(array.shape)


def _add_at(array, indices, values):
    dtype = program.NAME[array.dtype]
    if SETTINGS.deterministic and dtype in ("float32", "float64"):  # the order of atomic sums varies
        add_in_order(array, cupy.arange(array.size).reshape(array.shape)[indices], values)
    elif dtype in _ATOMIC:
        cupy.add.at(array, indices, values)
    elif dtype == "int64":  # sums wrap around in the same way
        cupy.add.at(array.view(np.uint64), indices, values.view(np.uint64))
    elif dtype in _WIDER:
        wide = array.astype(_WIDER[dtype])
        cupy.add.at(wide, indices, values.astype(wide.dtype))
        array[...] = wide.astype(array.dtype)
    else:
        for part, other in ((array.real, values.real), (array.imag, values.imag)):
            cupy.add.at(part, indices, other)
