"""Batch norm and group norm, and their gradients: statistics in one or two launches, then one over all elements.

Arrays are (images, channels, length). Batch norm takes channels-last memory without a copy: then every position is an
image, and the length is 1.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.array.norm import kept
from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY, Part

THREADS = 256
BLOCKS = 1024  # roughly enough to keep a large GPU busy
MOST_BLOCKS = 2**31 - 1


@cache
def _function(name, dtype, weight, backward, far):
    settings: dict = {"W": program.TYPES[weight][0]}
    settings |= {key: 1 for key, on in (("BACKWARD", backward), ("FAR", far)) if on}
    return program.function("batch_norm", name, dtype, **settings)


class _Shape(NamedTuple):
    """The strips of an array: for batch norm, a channel of several images; for groups, rows of one image."""

    images: int
    channels: int
    length: int

    @property
    def elements(self) -> int:
        """The elements of a strip."""
        return self.images * self.length

    def splits(self, some: int) -> tuple[int, int]:
        """Returns into how many pieces a strip is split, and their length in whole packs."""
        columns = self.length == 1
        blocks = -(-self.channels // 32) if columns else self.channels
        least = 8 * 32 if columns else THREADS * some * 4
        splits = max(1, min(-(-self.elements // least), -(-BLOCKS // blocks)))
        piece = -(-self.elements // (splits * 64)) * 64
        return -(-self.elements // piece), piece


class _Form(NamedTuple):
    """What selects the program: the dtypes of arrays and parameters, which half of it, and how it loads."""

    dtype: str
    weight: str
    backward: bool
    far: bool
    some: int  # elements per load

    @property
    def number(self) -> Any:
        """The type of sums."""
        return program.NUMBER[self.dtype]

    def launch(self, name: str, grid: int, block: tuple, *arguments):
        """Prepares a launch."""
        function = _function(name, self.dtype, self.weight, self.backward, self.far)
        return function.prepared((min(grid, MOST_BLOCKS),), block, arguments)

    def parts(self, name: str, shape: _Shape, arrays: int, per: int | None = None):
        """Prepares partial sums of arrays; also returns the number of pieces per strip."""
        splits, piece = shape.splits(self.some)
        pieces = np.int64(splits), np.int64(piece)
        sizes = [np.int64(n) for n in shape]
        given = [ARRAY] * (arrays + 1)  # the last is the workspace
        if shape.length == 1 and per in (None, 1):
            grid = -(-shape.channels // 32) * splits
            return self.launch(f"{name}_of_columns", grid, (32, 8), *given, *sizes[:2], *pieces), splits
        packed = np.bool_(self.some > 1 and shape.length % self.some == 0)
        extra = () if per is None else (np.int64(per),)
        grid = shape.channels * splits
        return self.launch(name, grid, (THREADS,), *given, *sizes, *pieces, *extra, packed), splits

    def elements(self, name: str, n: int, channels: int, length: int, width: int, *given):
        """Prepares one of the kernels that process all elements."""
        way = ""
        if self.some > 1 and length % self.some == 0:
            way = "_packed"
        elif self.some > 1 and length == 1 and not width and channels % self.some == 0:
            way = "_across"
        grid = -(-n // (THREADS * (self.some if way else 1)))
        sizes = [np.int64(v) for v in (n, channels, length, width)]
        return self.launch(name + way, grid, (THREADS,), *given, *sizes)


def _form(arrays, weight, bias, backward) -> _Form | None:
    """Returns the form of arrays of one dtype and shape, with these parameters; None if there are no kernels."""
    x = arrays[0]
    dtype, shape = x.dtype, x.shape
    name = kind = program.NAME[dtype]
    if name not in program.NUMBER or not x.size:
        return None
    some = 16 // dtype.itemsize
    for a in arrays:
        if a.dtype != dtype or a.shape != shape:
            return None
        if a.data.ptr % 16:
            some = 1
    given = weight if weight is not None else bias
    if given is not None:
        kind = program.NAME[given.dtype]
        if kind != name and kind != "float32":
            return None
        for p in (weight, bias):
            if p is not None and (p.dtype != given.dtype or not p.flags.c_contiguous):
                return None
    return _Form(name, kind, backward, x.size >= 2**31, some)


_NOTHING = np.int64(0)  # the address of an array that is not needed


def _places(*present: bool) -> list:
    """The arguments for arrays that may be missing."""
    return [ARRAY if there else _NOTHING for there in present]


class _Forward:
    """The launches of a forward pass: statistics of strips, then all elements, of which `width` share a strip."""

    def __init__(self, form: _Form, strips: _Shape, shape: _Shape, width: int, eps, given: tuple, with_variance: bool):
        self.form, self.strips, self.number = form, strips.channels, form.number
        self.moments, splits = form.parts("moments", strips, 1)
        self.workspace = strips.channels * splits, 3
        self.statistics = form.launch(
            "statistics", -(-strips.channels // THREADS), (THREADS,), ARRAY, ARRAY, ARRAY, *_places(with_variance),
            np.int64(strips.channels), np.int64(splits), self.number(eps),
        )  # fmt: skip
        places = [ARRAY, ARRAY, ARRAY, *_places(*given), ARRAY]
        size = shape.images * shape.channels * shape.length
        self.normalise = form.elements("normalise", size, shape.channels, shape.length, width, *places)


@lru_cache(maxsize=1024)
def _forward(form: _Form, strips: _Shape, shape: _Shape, width: int, eps, given: tuple, with_variance: bool):
    return _Forward(form, strips, shape, width, eps, given, with_variance)


def _there(*arrays) -> list:
    """Those of the arrays that are not None."""
    return [a for a in arrays if a is not None]


def _contiguous(*arrays):
    return [a if a.flags.c_contiguous else cupy.ascontiguousarray(a) for a in arrays]


def move_running(running_mean, running_var, mean, var, count: int, momentum: float):
    """Moves the running statistics in place towards those of a batch of `count` elements per channel."""
    kind, dtype = program.NAME[running_mean.dtype], program.NAME[mean.dtype]
    number, arrays = program.NUMBER.get(dtype), (running_mean, running_var, mean, var)
    if number is None or kind not in program.NUMBER or running_var.dtype != running_mean.dtype:
        return NotImplemented
    if not all(a.flags.c_contiguous and a.data.device_id == mean.data.device_id for a in arrays):
        return NotImplemented
    _moving(dtype, kind, mean.size, count, momentum)(*arrays)
    return None


@lru_cache(maxsize=1024)
def _moving(dtype: str, kind: str, size: int, count: int, momentum: float):
    number = program.NUMBER[dtype]
    unbiased = count / (count - 1) if count > 1 else math.inf
    given = ARRAY, ARRAY, ARRAY, ARRAY, number(unbiased), number(momentum), np.int64(size)
    return _function("move_running", dtype, kind, False, False).prepared((-(-size // THREADS),), (THREADS,), given)


# --- batch norm -----------------------------------------------------------------------------------------------------


def _channels_last(x) -> bool:
    return x.ndim > 2 and not x.flags.c_contiguous and cupy.moveaxis(x, 1, -1).flags.c_contiguous


def _laid_out(*arrays):
    """Returns contiguous arrays in memory order; their (images, channels, length); whether channels come last."""
    first = arrays[0]
    n, c = first.shape[:2]
    if _channels_last(first):
        moved = _contiguous(*(cupy.moveaxis(a, 1, -1) for a in arrays))
        return moved, _Shape(moved[0].size // c, c, 1), True
    return _contiguous(*arrays), _Shape(n, c, math.prod(first.shape[2:])), False


def _wide(array, number):
    return array if array is None or array.dtype == number else array.astype(number)


def batch_norm(x, weight, bias, running_mean, running_var, training, eps):
    """Returns (out, mean, var) per channel of (N, C, *): the batch's statistics in training, else the running ones.

    For backward it also returns the mean (copied if it is the running one, which will change) and the reciprocal
    deviation.
    """
    if x.ndim < 2 or not x.size:
        return NotImplemented
    (flat,), shape, last = _laid_out(x)
    form = _form([flat], weight, bias, False)
    if form is None:
        return NotImplemented
    how = _forward(form, shape, shape, 0, eps, (weight is not None, bias is not None), True)
    number, strips = how.number, how.strips
    if training:
        mean, rstd, var = cupy.empty(strips, number), cupy.empty(strips, number), cupy.empty(strips, number)
        parts = cupy.empty(how.workspace, number)
        how.moments(flat, parts)
        how.statistics(parts, mean, rstd, var)
    else:
        mean, var = (cupy.ascontiguousarray(_wide(v, number)) for v in (running_mean, running_var))
        rstd = cupy.reciprocal(cupy.sqrt(var + number(eps)))
    out = cupy.empty(flat.shape, flat.dtype)
    how.normalise(flat, mean, rstd, *_there(weight, bias), out)
    out = cupy.moveaxis(out, -1, 1) if last else out
    if training:
        return out, mean, var, kept(mean, x, weight, bias), kept(rstd, x, weight, bias)
    return out, mean, var, mean.copy(), rstd


class _BatchBackward:
    """The launches of batch norm's backward pass; `training`: gradients flow through the statistics, too."""

    def __init__(self, form: _Form, shape: _Shape, weighted: bool, training: bool):
        self.number = form.number
        self.sums, splits = form.parts("sums", shape, 3, per=1)
        self.partial = shape.channels * splits * 2  # numbers
        self.of_channels = form.launch(
            "of_channels", -(-shape.channels // THREADS), (THREADS,), ARRAY, ARRAY, *_places(weighted), ARRAY, ARRAY,
            ARRAY, ARRAY, np.int64(shape.channels), np.int64(splits), self.number(shape.elements),
        )  # fmt: skip
        size = shape.images * shape.channels * shape.length
        places = [ARRAY, ARRAY, ARRAY, ARRAY, *_places(weighted, training, training), ARRAY]
        self.input = form.elements("input", size, shape.channels, shape.length, 0, *places)


@lru_cache(maxsize=1024)
def _batch_backward(form: _Form, shape: _Shape, weighted: bool, training: bool) -> _BatchBackward:
    return _BatchBackward(form, shape, weighted, training)


def batch_norm_grad(g, x, weight, mean, rstd, training, need):
    """Returns the gradients (gx, gw, gb) of `batch_norm`; those not needed are None."""
    if x.ndim < 2 or not x.size:
        return NotImplemented
    (x_flat, g_flat), shape, last = _laid_out(x, g)
    form = _form([g_flat, x_flat], weight, None, True)
    if form is None:
        return NotImplemented
    how = _batch_backward(form, shape, weight is not None, training)
    number, strips = how.number, shape.channels
    mean, rstd = cupy.ascontiguousarray(_wide(mean, number)), cupy.ascontiguousarray(_wide(rstd, number))
    slope = shift = gw = gb = gx = None
    scale = _there(weight)
    if need[1] or need[2] or (training and need[0]):
        parts, n = cupy.empty(how.partial + 2 * strips, number), how.partial
        slope, shift = Part(parts, n, strips), Part(parts, n + strips, strips)
        how.sums(g_flat, x_flat, mean, parts)
        gw, gb = cupy.empty(strips, number), cupy.empty(strips, number)
        how.of_channels(parts, rstd, *scale, gw, gb, slope, shift)
    if need[0]:
        gx = cupy.empty(g_flat.shape, g_flat.dtype)
        how.input(g_flat, x_flat, mean, rstd, *scale, *((slope, shift) if training else ()), gx)
        gx = cupy.moveaxis(gx, -1, 1) if last else gx
    kind = g.dtype if weight is None else weight.dtype
    return _wanted((gx, gw, gb), need, g.dtype, kind)


def _wanted(grads, need, dtype, kind):
    """Casts gradients to their dtypes: the input's, and the weight's and bias's."""
    kinds = (dtype, kind, kind)
    return tuple([
        None if a is None or not wanted else a if a.dtype == kind else a.astype(kind)
        for a, wanted, kind in zip(grads, need, kinds)
    ])  # fmt: skip


# --- group norm -----------------------------------------------------------------------------------------------------


def group_norm(x, weight, bias, groups, eps):
    """Returns (out, mean, rstd): (N, C, *) normalized over each of `groups` groups of channels."""
    (x,) = _contiguous(x)
    form = _form([x], weight, bias, False)
    if form is None:
        return NotImplemented
    n, c = x.shape[:2]
    shape, rows = _Shape(n, c, math.prod(x.shape[2:])), n * groups
    width = x.size // rows
    given = weight is not None, bias is not None
    how = _forward(form, _Shape(1, rows, width), shape, width, eps, given, False)
    mean, rstd = cupy.empty(rows, how.number), cupy.empty(rows, how.number)
    parts = cupy.empty(how.workspace, how.number)
    how.moments(x, parts)
    how.statistics(parts, mean, rstd)
    out = cupy.empty(x.shape, x.dtype)
    how.normalise(x, mean, rstd, *_there(weight, bias), out)
    return out, *(kept(statistics.reshape(n, groups), x, weight, bias) for statistics in (mean, rstd))


class _GroupBackward:
    """The launches of group norm's backward pass."""

    def __init__(self, form: _Form, shape: _Shape, groups: int, weighted: bool):
        self.number = form.number
        n, c, length = shape
        rows = n * groups
        width = n * c * length // rows
        self.sums, splits = form.parts("sums", _Shape(1, n * c, length), 3, per=c // groups)
        self.workspace = n * c * splits, 2
        self.of_groups = form.launch(
            "of_groups", -(-rows // THREADS), (THREADS,), ARRAY, ARRAY, *_places(weighted), ARRAY, ARRAY, ARRAY, ARRAY,
            np.int64(rows), np.int64(groups), np.int64(c), np.int64(splits), self.number(width),
        )  # fmt: skip
        places = [ARRAY, ARRAY, ARRAY, ARRAY, *_places(weighted), ARRAY, ARRAY, ARRAY]
        self.input = form.elements("input", n * c * length, c, length, width, *places)


@lru_cache(maxsize=1024)
def _group_backward(form: _Form, shape: _Shape, groups: int, weighted: bool) -> _GroupBackward:
    return _GroupBackward(form, shape, groups, weighted)


def group_norm_grad(g, x, weight, mean, rstd, groups, need):
    """Returns the gradients (gx, gw, gb) of `group_norm`; those not needed are None."""
    g, x = _contiguous(g, x)
    form = _form([g, x], weight, None, True)
    if form is None:
        return NotImplemented
    n, c = x.shape[:2]
    rows = n * groups
    how = _group_backward(form, _Shape(n, c, math.prod(x.shape[2:])), groups, weight is not None)
    number, scale = how.number, _there(weight)
    mean, rstd = _contiguous(*(_wide(statistics.reshape(-1), number) for statistics in (mean, rstd)))
    parts = cupy.empty(how.workspace, number)
    how.sums(g, x, mean, parts)
    gw, gb, slope, shift = (cupy.empty(shape, number) for shape in ((n, c), (n, c), rows, rows))
    how.of_groups(parts, rstd, *scale, gw, gb, slope, shift)
    gx = None
    if need[0]:
        gx = cupy.empty(x.shape, x.dtype)
        how.input(g, x, mean, rstd, *scale, slope, shift, gx)
    sums = (sum_(a, 0, False, None) if wanted else None for a, wanted in zip((gw, gb), need[1:]))
    return _wanted((gx, *sums), need, g.dtype, g.dtype)
