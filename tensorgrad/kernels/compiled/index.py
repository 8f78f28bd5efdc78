"""Gathering, scattering and adding at indices along one dimension.

An array is viewed as (before, n, after), where n is the indexed dimension. Threads share positions of the result, not
the terms added to one: every sum is taken in the order of the indices, for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.array.index import extremes
from tensorgrad.kernels.compiled.functions import F
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inner
from tensorgrad.kernels.compiled.runtime.launch import shared

_CUBE, _NUMBERS = "float32[:,:,::1]", "int64[:,:,::1]"
_COLUMNS = 64  # columns per thread at a time


def _cube(x, dim):
    shape = x.shape
    return x.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


def _valid(index, size) -> bool:
    low, high = extremes(np, index)
    return low >= 0 and high < size


def _numbers(x, dim, index):
    """Returns the indices of `gather` or `scatter` in three dimensions; None if the kernels do not support them."""
    if not suits(x) or index.ndim != x.ndim or not index.ndim or not index.size or not x.size:
        return None
    if not _valid(index, x.shape[dim]):
        return None
    for k, (have, asked) in enumerate(zip(x.shape, index.shape, strict=True)):
        # If fewer positions are indexed, they must be the first of those before or after `dim`.
        if have != asked and k not in (0, dim, dim + 1):
            return None
    return _cube(np.ascontiguousarray(index, np.int64), dim)


def _gather():
    @shared(f"void({_CUBE}, {_NUMBERS}, {_CUBE}, int64, int64)")
    def rows(x, index, out, first, last):
        several = index.shape[1]
        for n in range(first, last):
            a, k = n // several, n % several
            source, row, to = x[a], index[a, k], out[a, k]
            for j in range(to.size):
                to[j] = source[np.uint64(row[j]), j]

    @shared(f"void({_CUBE}, {_NUMBERS}, {_CUBE}, int64, int64)")
    def columns(x, index, out, first, last):
        for a in range(first, last):
            source, row, to = x[a].reshape(-1), index[a].reshape(-1), out[a].reshape(-1)
            for j in range(to.size):
                to[j] = source[np.uint64(row[j])]

    def kernel(x, dim, index):
        numbers = _numbers(x, dim, index)
        if numbers is None:
            return NotImplemented
        before, several, _ = numbers.shape
        out = np.empty(index.shape, F32)
        args = (_cube(x, dim), numbers, _cube(out, dim))
        if dim == x.ndim - 1:
            thread_pool.run(columns, before, args, 2 * index.size)
        else:
            thread_pool.run(rows, before * several, args, 2 * index.size)
        return out

    return kernel


@inner
def _put(to, row, values, add):
    for k in range(row.size):
        at = np.uint64(row[k])
        to[at] = to[at] + values[k] if add else values[k]


def _scatter(add: bool):
    @shared(f"void({_CUBE}, {_NUMBERS}, {_CUBE}, boolean, int64, int64)")
    def loop(out, index, src, add, first, last):
        after = index.shape[2]
        blocks = (after + _COLUMNS - 1) // _COLUMNS
        for unit in range(first, last):
            a, start = unit // blocks, unit % blocks * _COLUMNS
            if out.shape[2] == 1:
                _put(out[a].reshape(-1), index[a].reshape(-1), src[a].reshape(-1), add)
                continue
            to = out[a]
            for k in range(index.shape[1]):
                row, values = index[a, k], src[a, k]
                for j in range(start, min(start + _COLUMNS, after)):
                    at = np.uint64(row[j])
                    to[at, j] = to[at, j] + values[j] if add else values[j]

    def kernel(x, dim, index, src):
        if not isinstance(src, np.ndarray) or src.dtype is not F32 or src.ndim != index.ndim:
            return NotImplemented
        numbers = _numbers(x, dim, index)
        if numbers is None:
            return NotImplemented
        if src.shape != index.shape:
            src = src[tuple(slice(n) for n in index.shape)]
        out = x.copy()
        before, _, after = numbers.shape
        args = (_cube(out, dim), numbers, _cube(np.ascontiguousarray(src), dim), add)
        thread_pool.run(loop, before * -(-after // _COLUMNS), args, 2 * index.size)
        return out

    return kernel


def _index_add():
    @shared(f"void({_CUBE}, int64[::1], {_CUBE}, float32, int64, int64)")
    def loop(out, index, src, alpha, first, last):
        after = out.shape[2]
        blocks = (after + _COLUMNS - 1) // _COLUMNS
        for unit in range(first, last):
            a, start = unit // blocks, unit % blocks * _COLUMNS
            end = min(start + _COLUMNS, after)
            for k in range(index.size):
                row, to = src[a, k, start:end], out[a, index[k], start:end]
                for j in range(to.size):
                    to[j] += alpha * row[j]

    def kernel(x, dim, index, src, alpha):
        if not suits(x) or not suits(src) or not x.ndim or not index.size or not x.size or src.ndim != x.ndim:
            return NotImplemented
        index = np.ascontiguousarray(index, np.int64).reshape(-1)
        expected = (*x.shape[:dim], index.size, *x.shape[dim + 1 :])
        if src.shape != expected or not _valid(index, x.shape[dim]):
            return NotImplemented
        out = x.copy()
        cube = _cube(out, dim)
        thread_pool.run(
            loop, cube.shape[0] * -(-cube.shape[2] // _COLUMNS), (cube, index, _cube(src, dim), F(alpha)), src.size
        )
        return out

    return kernel


KERNELS: dict[str, Callable[[], Callable]] = {
    "gather": _gather,
    "scatter": lambda: _scatter(False),
    "scatter_add": lambda: _scatter(True),
    "index_add": _index_add,
}
