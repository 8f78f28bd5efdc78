"""Batch norm and group norm, and their gradients: statistics in one or two launches, then one over all elements.

Arrays are (images, channels, length). Batch norm takes channels-last memory without a copy: then every position is an
image, and the length is 1.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.reduce import sum_
from tensorgrad.kernels.cuda.runtime import program

THREADS = 256
BLOCKS = 1024  # roughly enough to keep a large GPU busy
MOST_BLOCKS = 2**31 - 1


@cache
def _function(name, dtype, weight, backward, far):
    settings: dict = {"W": program.TYPES[weight][0]}
    settings |= {key: 1 for key, on in (("BACKWARD", backward), ("FAR", far)) if on}
    return program.function("channels", name, dtype, **settings)


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


class _Launches:
    """The launches over arrays of one dtype and size."""

    def __init__(self, arrays, weight, bias, backward):
        x = arrays[0]
        given = [p for p in (weight, bias) if p is not None]
        self.dtype = program.NAME[x.dtype]
        self.weight = program.NAME[given[0].dtype] if given else self.dtype
        self.ready = (
            self.dtype in program.NUMBER
            and x.size > 0
            and all(a.dtype == x.dtype and a.shape == x.shape for a in arrays)
            and all(program.NAME[p.dtype] == self.weight and p.flags.c_contiguous for p in given)
            and self.weight in (self.dtype, "float32")
        )
        self.backward, self.far = backward, x.size >= 2**31
        self.some = 16 // x.dtype.itemsize if all(a.data.ptr % 16 == 0 for a in arrays) else 1
        self.number: Any = program.NUMBER.get(self.dtype)

    def launch(self, name, grid, block, *args):
        function = _function(name, self.dtype, self.weight, self.backward, self.far)
        function((min(grid, MOST_BLOCKS),), block, args)

    def parts(self, name: str, size: int, shape: _Shape, *arrays, per: int | None = None):
        """Returns partial sums, `size` numbers per piece of each strip, and the number of pieces per strip."""
        splits, piece = shape.splits(self.some)
        workspace = cupy.empty((shape.channels * splits, size), self.number)
        pieces = np.int64(splits), np.int64(piece)
        sizes = [np.int64(n) for n in shape]
        if shape.length == 1 and per in (None, 1):
            grid = -(-shape.channels // 32) * splits
            self.launch(f"{name}_of_columns", grid, (32, 8), *arrays, workspace, *sizes[:2], *pieces)
        else:
            packed = np.bool_(self.some > 1 and shape.length % self.some == 0)
            extra = () if per is None else (np.int64(per),)
            self.launch(name, shape.channels * splits, (THREADS,), *arrays, workspace, *sizes, *pieces, *extra, packed)
        return workspace, splits

    def statistics(self, x, shape: _Shape, eps: float, with_variance: bool):
        """Computes the mean, reciprocal deviation and variance (or None) of each strip."""
        parts, splits = self.parts("moments", 3, shape, x)
        mean, rstd = (cupy.empty(shape.channels, self.number) for _ in range(2))
        var = cupy.empty_like(mean) if with_variance else None
        self.launch(
            "statistics", -(-shape.channels // THREADS), (THREADS,), parts, mean, rstd, _or_none(var),
            np.int64(shape.channels), np.int64(splits), self.number(eps),
        )  # fmt: skip
        return mean, rstd, var

    def elements(self, name: str, n: int, channels: int, length: int, width: int, *args):
        """Runs one of the kernels that process all elements."""
        way = ""
        if self.some > 1 and length % self.some == 0:
            way = "_packed"
        elif self.some > 1 and length == 1 and not width and channels % self.some == 0:
            way = "_across"
        grid = -(-n // (THREADS * (self.some if way else 1)))
        sizes = (np.int64(v) for v in (n, channels, length, width))
        self.launch(name + way, grid, (THREADS,), *map(_or_none, args), *sizes)


def _or_none(array) -> Any:
    return np.int64(0) if array is None else array


def _contiguous(*arrays):
    return [cupy.ascontiguousarray(a) for a in arrays]


def move_running(running_mean, running_var, mean, var, count: int, momentum: float):
    """Moves the running statistics in place towards those of a batch of `count` elements per channel."""
    kind, dtype = program.NAME[running_mean.dtype], program.NAME[mean.dtype]
    number, arrays = program.NUMBER.get(dtype), (running_mean, running_var, mean, var)
    if number is None or kind not in program.NUMBER or running_var.dtype != running_mean.dtype:
        return NotImplemented
    if not all(a.flags.c_contiguous and a.data.device_id == mean.data.device_id for a in arrays):
        return NotImplemented
    unbiased = count / (count - 1) if count > 1 else math.inf
    _function("move_running", dtype, kind, False, False)(
        (-(-mean.size // THREADS),), (THREADS,), (*arrays, number(unbiased), number(momentum), np.int64(mean.size))
    )
    return None


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
    return None if array is None else array.astype(number, copy=False)


def batch_norm(x, weight, bias, running_mean, running_var, training, eps):
    """Returns (out, mean, var) per channel of (N, C, *): the batch's statistics in training, else the running ones.

    For backward it also returns the mean (copied if it is the running one, which will change) and the reciprocal
    deviation.
    """
    if x.ndim < 2 or not x.size:
        return NotImplemented
    (flat,), shape, last = _laid_out(x)
    launches = _Launches([flat], weight, bias, False)
    if not launches.ready:
        return NotImplemented
    if training:
        mean, rstd, var = launches.statistics(flat, shape, eps, True)
    else:
        mean, var = (cupy.ascontiguousarray(_wide(v, launches.number)) for v in (running_mean, running_var))
        rstd = cupy.reciprocal(cupy.sqrt(var + launches.number(eps)))
    out = cupy.empty_like(flat)
    launches.elements("normalise", flat.size, shape.channels, shape.length, 0, flat, mean, rstd, weight, bias, out)
    out = cupy.moveaxis(out, -1, 1) if last else out
    return out, mean, var, mean if training else mean.copy(), rstd


def batch_norm_grad(g, x, weight, mean, rstd, training, need):
    """Returns the gradients (gx, gw, gb) of `batch_norm`; those not needed are None."""
    if x.ndim < 2 or not x.size:
        return NotImplemented
    (x_flat, g_flat), shape, last = _laid_out(x, g)
    launches = _Launches([g_flat, x_flat], weight, None, True)
    if not launches.ready:
        return NotImplemented
    mean, rstd = (cupy.ascontiguousarray(_wide(v, launches.number)) for v in (mean, rstd))
    slope = shift = gw = gb = gx = None
    if need[1] or need[2] or (training and need[0]):
        parts, splits = launches.parts("sums", 2, shape, g_flat, x_flat, mean, per=1)
        gw, gb, slope, shift = (cupy.empty(shape.channels, launches.number) for _ in range(4))
        launches.launch(
            "of_channels", -(-shape.channels // THREADS), (THREADS,), parts, rstd, _or_none(weight), gw, gb, slope,
            shift, np.int64(shape.channels), np.int64(splits), launches.number(shape.elements),
        )  # fmt: skip
    if not training:
        slope = shift = None
    if need[0]:
        gx = cupy.empty_like(g_flat)
        launches.elements(
            "input", g_flat.size, shape.channels, shape.length, 0, g_flat, x_flat, mean, rstd, weight, slope, shift, gx
        )
        gx = cupy.moveaxis(gx, -1, 1) if last else gx
    kind = g.dtype if weight is None else weight.dtype
    return _wanted((gx, gw, gb), need, g.dtype, kind)


def _wanted(grads, need, dtype, kind):
    """Casts gradients to their dtypes: the input's, and the weight's and bias's."""
    kinds = (dtype, kind, kind)
    return tuple(
        None if a is None or not wanted else a.astype(kind, copy=False) for a, wanted, kind in zip(grads, need, kinds)
    )


# --- group norm -----------------------------------------------------------------------------------------------------


def group_norm(x, weight, bias, groups, eps):
    """Returns (out, mean, rstd): (N, C, *) normalized over each of `groups` groups of channels."""
    (x,) = _contiguous(x)
    launches = _Launches([x], weight, bias, False)
    if not launches.ready:
        return NotImplemented
    n, c = x.shape[:2]
    length, rows = math.prod(x.shape[2:]), n * groups
    width = x.size // rows
    mean, rstd, _ = launches.statistics(x, _Shape(1, rows, width), eps, False)
    out = cupy.empty_like(x)
    launches.elements("normalise", x.size, c, length, width, x, mean, rstd, weight, bias, out)
    return out, mean.reshape(n, groups), rstd.reshape(n, groups)


def group_norm_grad(g, x, weight, mean, rstd, groups, need):
    """Returns the gradients (gx, gw, gb) of `group_norm`; those not needed are None."""
    g, x = _contiguous(g, x)
    launches = _Launches([g, x], weight, None, True)
    if not launches.ready:
        return NotImplemented
    n, c = x.shape[:2]
    length, rows = math.prod(x.shape[2:]), n * groups
    width = x.size // rows
    mean, rstd = _contiguous(mean.reshape(-1), rstd.reshape(-1))
    parts, splits = launches.parts("sums", 2, _Shape(1, n * c, length), g, x, mean, per=c // groups)
    gw, gb = (cupy.empty((n, c), launches.number) for _ in range(2))
    slope, shift = (cupy.empty(rows, launches.number) for _ in range(2))
    launches.launch(
        "of_groups", -(-rows // THREADS), (THREADS,), parts, rstd, _or_none(weight), gw, gb, slope, shift,
        np.int64(rows), np.int64(groups), np.int64(c), np.int64(splits), launches.number(width),
    )  # fmt: skip
    gx = None
    if need[0]:
        gx = cupy.empty_like(x)
        launches.elements("input", x.size, c, length, width, g, x, mean, rstd, weight, slope, shift, gx)
    sums = (sum_(a, 0, False, None) if wanted else None for a, wanted in zip((gw, gb), need[1:]))
    return _wanted((gx, *sums), need, g.dtype, g.dtype)
