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

from tensorgrad.kernels.array.norm import kept
from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY
from tensorgrad.kernels.cuda.runtime.register_rows import Plan, plan

F32 = np.dtype("float32")
_NOTHING = np.int64(0)  # the address of an array that is not needed

# For the backward kernel, which keeps sums in registers: about half of a large GPU's capacity.
THREADS_AT_ONCE = 132 * 512


class _Rows(NamedTuple):
    """How rows are divided among threads: their number and length, the shape of their statistics, and the program."""

    rows: Any
    n: Any
    statistics: tuple
    number: Any  # the type of sums
    plan: Plan
    launches: dict[str, Any]  # the program's functions


def _divided(shape: tuple, dims: int, dtype: np.dtype, weight: np.dtype, plan: Plan, centred: bool) -> _Rows:
    lead = shape[: len(shape) - dims]
    rows, name = math.prod(lead), dtype.name
    settings = {**plan.settings, "W": program.TYPES[weight.name][0], **({"CENTRED": 1} if centred else {})}
    launches = {way: program.function("norm", way, name, **settings) for way in ("forward", "backward")}
    n, number = math.prod(shape[len(lead) :]), program.NUMBER[name]
    return _Rows(np.int64(rows), np.int32(n), lead + (1,) * dims, number, plan, launches)


def _rows(arrays, axes, parameters) -> tuple[Plan, np.dtype] | None:
    """Divides the rows of arrays of one shape, with these parameters, which have the second result's dtype.

    Returns None if the kernels do not support them.
    """
    x = arrays[0]
    dtype, shape, weight = x.dtype, x.shape, None
    if program.NAME[dtype] not in program.NUMBER or not x.size:
        return None
    for a in arrays[1:]:
        if a.shape != shape or a.dtype != dtype:
            return None
    n = shape[-1] if len(axes) == 1 else math.prod(shape[len(shape) - len(axes) :])
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
    return None if how is None else (how, weight or dtype)


def _place(there: bool) -> Any:
    return ARRAY if there else _NOTHING


class _Forward(NamedTuple):
    """A forward pass: its launch, and the shape and dtype of the statistics."""

    launch: Any
    statistics: tuple
    number: Any


@lru_cache(maxsize=4096)
def _forward_of(shape, dims, dtype, weight, plan, centred: bool, weighted: bool, biased: bool, eps) -> _Forward:
    rows = _divided(shape, dims, dtype, weight, plan, centred)
    places = ARRAY, _place(weighted), _place(biased), ARRAY, _place(centred), ARRAY
    given = *places, rows.rows, rows.n, rows.number(eps)
    launch = rows.launches["forward"].prepared((plan.blocks(int(rows.rows)),), (plan.threads,), given)
    return _Forward(launch, rows.statistics, rows.number)


def _forward(x, weight, bias, axes, eps, centred):
    x = cupy.ascontiguousarray(x)
    found = _rows([x], axes, (weight, bias))
    if found is None:
        return NotImplemented
    shape, dtype, weighted, biased = x.shape, x.dtype, weight is not None, bias is not None
    how = _forward_of(shape, len(axes), dtype, found[1], found[0], centred, weighted, biased, eps)
    out, rstd = cupy.empty(shape, dtype), cupy.empty(how.statistics, how.number)
    mean = cupy.empty(how.statistics, how.number) if centred else None
    how.launch(*[a for a in (x, weight, bias, out, mean, rstd) if a is not None])
    return out, mean, rstd


class _Backward(NamedTuple):
    """A backward pass: its launch, and the partial sums of the parameters' gradients."""

    launch: Any
    lines: tuple  # their shape
    number: Any


@lru_cache(maxsize=4096)
def _backward_of(shape, dims, dtype, weight, plan, centred: bool, weighted: bool, need: tuple) -> _Backward | None:
    """Returns None if the kernel does not support such long rows (sources/norm.cu)."""
    if plan.threads > (256 if dtype.itemsize < 4 else 512):
        return None
    rows = _divided(shape, dims, dtype, weight, plan, centred)
    blocks = min(plan.blocks(int(rows.rows)), THREADS_AT_ONCE // plan.threads)
    places = ARRAY, ARRAY, _place(weighted), _place(centred), ARRAY, *[_place(each) for each in need]
    given = *places, rows.rows, rows.n
    launch = rows.launches["backward"].prepared((blocks,), (plan.threads,), given)
    return _Backward(launch, (blocks * plan.groups, int(rows.n)), rows.number)


def _backward(g, x, weight, mean, rstd, axes, need, centred):
    g, x = cupy.ascontiguousarray(g), cupy.ascontiguousarray(x)
    found = _rows([g, x], axes, (weight,))
    if found is None:
        return NotImplemented
    wanted = bool(need[0]), bool(need[1]), len(need) > 2 and bool(need[2])
    shape, dtype = x.shape, x.dtype
    how = _backward_of(shape, len(axes), dtype, found[1], found[0], centred, weight is not None, wanted)
    if how is None:
        return NotImplemented
    gx = cupy.empty(shape, dtype) if wanted[0] else None
    lines = [cupy.empty(how.lines, how.number) if each else None for each in wanted[1 : len(need)]]
    how.launch(*[a for a in (g, x, weight, mean, rstd, gx, *lines) if a is not None])
    tail = shape[x.ndim - len(axes) :]
    sums = [a if a is None else _summed(a, tail, dtype) for a in lines]
    return gx, *sums


def _summed(lines, shape, dtype):
    total = sum_(lines, 0, False, None)
    if len(shape) != 1:
        total = total.reshape(shape)
    return total if total.dtype == dtype else total.astype(dtype)


# --- the ops' kernels ----------------------------------------------------------------------------------------------


def layer_norm(x, weight, bias, axes, eps):
    """Returns (out, mean, rstd): layer normalization over the trailing axes."""
    made = _forward(x, weight, bias, axes, eps, True)
    if made is NotImplemented or x.dtype.itemsize != 2:
        return made
    return made[0], kept(made[1], x, weight, bias), kept(made[2], x, weight, bias)


def layer_norm_grad(g, x, weight, mean, rstd, axes, need):
    """Returns the gradients (gx, gw, gb) of `layer_norm`; those not needed are None."""
    if mean.dtype.itemsize == 2:
        mean, rstd = mean.astype(F32), rstd.astype(F32)
    return _backward(g, x, weight, mean, rstd, axes, need, True)


def rms_norm(x, weight, axes, eps):
    """Returns (out, rrms): root-mean-square normalization over the trailing axes."""
    made = _forward(x, weight, None, axes, eps, False)
    return made if made is NotImplemented else (made[0], made[2])


def rms_norm_grad(g, x, weight, rrms, axes, need):
    """Returns the gradients (gx, gw) of `rms_norm`."""
    return _backward(g, x, weight, None, rrms, axes, need, False)
