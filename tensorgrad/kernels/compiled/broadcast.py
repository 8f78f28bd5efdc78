"""Arithmetic on float32 arrays of different shapes (a bias, a factor for each row or channel), and selection.

NumPy copies operands that broadcast through a buffer; here each row is one loop over the original memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.layout import suits
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.language import inlined, inner
from tensorgrad.kernels.compiled.runtime.launch import shared
from tensorgrad.kernels.compiled.walk import joint, plan

_COST = 0.75


def _joined(function) -> Callable:
    return joint(inlined(function), _COST)


# --- selection -------------------------------------------------------------------------------------------------------


@cache
def _chosen() -> Callable:
    """Selects x where a condition is true, else y; each is an array of the condition's shape, or a scalar."""

    @inner
    def arrays(c, x, y, to):
        for i in range(to.size):
            a, b = x[i], y[i]
            to[i] = a if c[i] else b

    @inner
    def one_right(c, x, y, to):
        for i in range(to.size):
            a = x[i]
            to[i] = a if c[i] else y

    @inner
    def one_left(c, x, y, to):
        for i in range(to.size):
            b = y[i]
            to[i] = x if c[i] else b

    @inner
    def copied(x, to):
        if x.size == 1:
            for i in range(to.size):
                to[i] = x[0]
        else:
            for i in range(to.size):
                to[i] = x[i]

    @shared("void(boolean[::1], float32[::1], float32[::1], float32[::1], UniTuple(int64, 11), int64, int64)")
    def walk(condition, x, y, out, numbers, first, last):
        """`numbers` are those of the result and the condition."""
        length, rows, planes, _, _, _, _, c_block, c_plane, c_row, c_step = numbers
        at = first
        while at < last:
            row, column = at // length, at % length
            n = min(length - column, last - at)
            plane = row // rows
            q = plane // planes * c_block + plane % planes * c_plane + row % rows * c_row + column * c_step
            to, p = out[at : at + n], at
            if c_step == 0:
                here = x if condition[q] else y
                copied(here[:1] if here.size == 1 else here[p : p + n], to)
            elif x.size == 1:
                one_left(condition[q : q + n], x[0], y[p : p + n], to)
            elif y.size == 1:
                one_right(condition[q : q + n], x[p : p + n], y[0], to)
            else:
                arrays(condition[q : q + n], x[p : p + n], y[p : p + n], to)
            at += n

    def choose(condition, x, y, shape):
        if not suits(x) or not suits(y) or condition.dtype.kind != "b" or not condition.flags.c_contiguous:
            return NotImplemented
        planned = plan(shape, condition.shape)
        if planned is None or planned[0] != shape:
            return NotImplemented
        for value in (x, y):
            if value.shape != shape and (value.size != 1 or value.ndim > len(shape)):
                return NotImplemented
        out = np.empty(shape, F32)
        flat = condition.reshape(-1), x.reshape(-1), y.reshape(-1), out.reshape(-1)
        thread_pool.run(walk, out.size, (*flat, planned[1]), int(out.size * _COST))
        return out

    return choose


def _where() -> Callable:
    choose = _chosen()

    def kernel(condition, x, y):
        if x.dtype is not F32 or y.dtype is not F32:
            return NotImplemented
        return choose(condition, x, y, max(x, y, key=lambda a: a.size).shape)

    return kernel


def _masked_fill() -> Callable:
    choose = _chosen()

    def kernel(x, mask, value):
        if x.dtype is not F32:
            return NotImplemented
        with np.errstate(all="ignore"):
            return choose(mask, np.full(1, value, F32), x, x.shape)

    return kernel


def _add(a, b):
    return a + b


def _sub(a, b):
    return a - b


def _mul(a, b):
    return a * b


def _div(a, b):
    return a / b


KERNELS: dict[str, Callable[[], Callable]] = {
    "add": lambda: _joined(_add), "sub": lambda: _joined(_sub), "mul": lambda: _joined(_mul),
    "div": lambda: _joined(_div), "where": _where, "masked_fill": _masked_fill,
}  # fmt: skip
