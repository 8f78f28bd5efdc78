"""Layer norm and RMS norm, and their gradients: one launch forward; one backward, plus the sums over rows.

Rows are kept in registers: forward up to 4,096 packs of sixteen bytes (or elements, where rows are not aligned to
packs), backward up to 2,048, or 1,024 of two-byte floats.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.register_rows import Plan, plan

F32 = np.dtype("float32")
_NOTHING = np.int64(0)  # the address of an array that is not needed

# For the backward kernel, which keeps sums in registers: about half of a large GPU's capacity.
THREADS_AT_ONCE = 132 * 512


class _Rows(NamedTuple):
    """How rows are divided among threads: their number and length, the shape of their statistics, and the launch."""

    rows: Any
    n: Any
    statistics: tuple
    number: Any  # the type of sums
    plan: Plan
    blocks: int
    launches: dict[str, Any]  # the program's functions


@lru_cache(maxsize=4096)
def _divided(shape: tuple, dims: int, dtype: np.dtype, weight: np.dtype, plan: Plan, centred: bool) -> _Rows:
    lead = shape[: len(shape) - dims]
    rows, name = math.prod(lead), dtype.name
    settings = {**plan.settings, "W": program.TYPES[weight.name][0], **({"CENTRED": 1} if centred else {})}
    launches = {way: program.function("norm", way, name, **settings) for way in ("forward", "backward")}
    n, number = math.prod(shape[len(lead) :]), program.NUMBER[name]
    return _Rows(np.int64(rows), np.int32(n), lead + (1,) * dims, number, plan, plan.blocks(rows), launches)


def _rows(arrays, axes, parameters, centred) -> _Rows | None:
    """Divides the rows of arrays of one shape, with these parameters; None if the kernels do not support them."""
    x = arrays[0]
    dtype, shape, dims, weight = x.dtype, x.shape, len(axes), None
    if program.NAME[dtype] not in program.NUMBER or not x.size:
        return None
    for a in arrays[1:]:
        if a.shape != shape or a.dtype != dtype:
            return None
    n = math.prod(shape[len(shape) - dims :])
    given = list(arrays)
    for p in parameters:
        if p is not None:
            weight = p.dtype if weight is None else weight
            if p.dtype != weight or p.size != n or not p.flags.c_contiguous:
                return None
            given.append(p)
    if weight is not None and weight != dtype and weight != F32:
        return None
    how = plan(n, given)
    return None if how is None else _divided(shape, dims, dtype, weight or dtype, how, centred)


def _or_none(array) -> Any:
    return _NOTHING if array is None else array


def _forward(x, weight, bias, axes, eps, centred):
    x = cupy.ascontiguousarray(x)
    rows = _rows([x], axes, (weight, bias), centred)
    if rows is None:
        return NotImplemented
    out, rstd = cupy.empty(x.shape, x.dtype), cupy.empty(rows.statistics, rows.number)
    mean = cupy.empty(rows.statistics, rows.number) if centred else None
    given = x, _or_none(weight), _or_none(bias), out, _or_none(mean), rstd, rows.rows, rows.n, rows.number(eps)
    rows.launches["forward"]((rows.blocks,), (rows.plan.threads,), given)
    return out, mean, rstd


def _backward(g, x, weight, mean, rstd, axes, need, centred):
    g, x = cupy.ascontiguousarray(g), cupy.ascontiguousarray(x)
    rows = _rows([g, x], axes, (weight,), centred)
    if rows is None or rows.plan.threads > (256 if g.dtype.itemsize < 4 else 512):  # as in sources/norm.cu
        return NotImplemented
    gx = cupy.empty(x.shape, x.dtype) if need[0] else None
    blocks = min(rows.blocks, THREADS_AT_ONCE // rows.plan.threads)
    lines = [
        cupy.empty((blocks * rows.plan.groups, int(rows.n)), rows.number) if wanted else None for wanted in need[1:3]
    ]
    sums_of = [_or_none(a) for a in (*lines, None)[:2]]
    given = g, x, _or_none(weight), _or_none(mean), rstd, _or_none(gx), *sums_of, rows.rows, rows.n
    rows.launches["backward"]((blocks,), (rows.plan.threads,), given)
    shape = x.shape[x.ndim - len(axes) :]
    sums = [a if a is None else _summed(a, shape, g.dtype) for a in lines]
    return gx, *sums


def _summed(lines, shape, dtype):
    total = sum_(lines, 0, False, None)
    if len(shape) != 1:
        total = total.reshape(shape)
    return total if total.dtype == dtype else total.astype(dtype)


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
