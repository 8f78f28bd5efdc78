"""Layer norm and RMS norm, and their gradients: one launch forward; one backward, plus the sums over rows.

Rows are kept in registers: forward up to 4,096 packs of sixteen bytes (or elements, where rows are not aligned to
packs), backward up to 2,048, or 1,024 of two-byte floats.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import cupy
import numpy as np

from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.register_rows import plan

# For the backward kernel, which keeps sums in registers: about half of a large GPU's capacity.
THREADS_AT_ONCE = 132 * 512


@cache
def _function(name, dtype, weight, rows, centred):
    settings = {**rows.settings, "W": program.TYPES[weight][0], **({"CENTRED": 1} if centred else {})}
    return program.function("norm", name, dtype, **settings)


class _Rows:
    """How an array's rows are divided among threads. `ready` is False if the kernels do not support them."""

    def __init__(self, arrays, axes, parameters, centred):
        x = arrays[0]
        self.dtype, self.centred = program.NAME[x.dtype], centred
        self.lead = x.shape[: x.ndim - len(axes)]
        self.rows, self.n = math.prod(self.lead), math.prod(x.shape[len(self.lead) :])
        given = [p for p in parameters if p is not None]
        self.weight = program.NAME[given[0].dtype] if given else self.dtype
        self.ready = (
            self.dtype in program.NUMBER
            and x.size > 0
            and all(a.shape == x.shape and a.dtype == x.dtype and a.flags.c_contiguous for a in arrays)
            and all(program.NAME[p.dtype] == self.weight and p.size == self.n and p.flags.c_contiguous for p in given)
            and self.weight in (self.dtype, "float32")
        )
        if not self.ready:
            return
        self.plan: Any = plan(self.n, [*arrays, *given])
        self.ready = self.plan is not None

    def launch(self, name, blocks, *args):
        _function(name, self.dtype, self.weight, self.plan, self.centred)((blocks,), (self.plan.threads,), args)

    def statistics(self, axes, number):
        return cupy.empty(self.lead + (1,) * len(axes), number)


def _or_none(array) -> Any:
    return np.int64(0) if array is None else array


def _forward(x, weight, bias, axes, eps, centred):
    x = cupy.ascontiguousarray(x)
    rows = _Rows([x], axes, (weight, bias), centred)
    if not rows.ready:
        return NotImplemented
    number = program.NUMBER[rows.dtype]
    out, rstd = cupy.empty_like(x), rows.statistics(axes, number)
    mean = rows.statistics(axes, number) if centred else None
    rows.launch(
        "forward", rows.plan.blocks(rows.rows), x, _or_none(weight), _or_none(bias), out, _or_none(mean), rstd,
        np.int64(rows.rows), np.int32(rows.n), number(eps),
    )  # fmt: skip
    return out, mean, rstd


def _backward(g, x, weight, mean, rstd, axes, need, centred):
    g, x = cupy.ascontiguousarray(g), cupy.ascontiguousarray(x)
    rows = _Rows([g, x], axes, (weight,), centred)
    if not rows.ready:
        return NotImplemented
    if rows.plan.threads > (256 if g.dtype.itemsize < 4 else 512):  # as in sources/norm.cu
        return NotImplemented
    number = program.NUMBER[rows.dtype]
    gx = cupy.empty_like(x) if need[0] else None
    blocks = min(rows.plan.blocks(rows.rows), THREADS_AT_ONCE // rows.plan.threads)
    lines = [cupy.empty((blocks * rows.plan.groups, rows.n), number) if wanted else None for wanted in need[1:3]]
    sums_of = [_or_none(a) for a in (*lines, None)[:2]]
    rows.launch(
        "backward", blocks, g, x, _or_none(weight), _or_none(mean), rstd, _or_none(gx), *sums_of, np.int64(rows.rows),
        np.int32(rows.n),
    )  # fmt: skip
    shape = x.shape[len(rows.lead) :]
    sums = [a if a is None else sum_(a, 0, False, None).reshape(shape).astype(g.dtype, copy=False) for a in lines]
    return gx, *sums


# --- the ops' kernels ----------------------------------------------------------------------------------------------


def layer_norm(x, weight, bias, axes, eps):
    """Returns (out, mean, rstd): layer normalization over the trailing axes."""
    return _forward(x, weight, bias, axes, eps, True)


def layer_norm_grad(g, x, weight, mean, rstd, axes, need):
    """Returns the gradients (gx, gw, gb) of `layer_norm`; those not needed are None."""
    return _backward(g, x, weight, mean, rstd, axes, need, True)


def rms_norm(x, weight, axes, eps):
    """Returns (out, rrms): root-mean-square normalization over the trailing axes."""
    made = _forward(x, weight, None, axes, eps, False)
    return made if made is NotImplemented else (made[0], made[2])


def rms_norm_grad(g, x, weight, rrms, axes, need):
    """Returns the gradients (gx, gw) of `rms_norm`."""
    return _backward(g, x, weight, None, rrms, axes, need, False)
