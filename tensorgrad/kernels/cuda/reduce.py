"""Reductions over any dimensions: sums, means, extrema and their indices, norms, variances, log-sum-exp.

Adjacent dimensions are merged first. The rest takes one pass over rows or columns, or two if reduced dimensions
surround kept ones, or if there are too few results to keep a GPU busy. Each element is read once, sums of two-byte
floats are kept in float32, and no atomics are used: the order of a sum is always the same.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY

THREADS = 256
SHORT = 1024  # rows up to this length are reduced by the lanes of one warp
BLOCKS = 1024  # roughly enough to keep a large GPU busy
MOST_BLOCKS = 2**31 - 1
I64 = np.dtype("int64")
_NOTHING = np.int64(0)  # the address of a result that is not requested


class Kind(NamedTuple):
    """An op's result: its dtype (None: the input's), and the size of a tally, in numbers and in additional bytes."""

    out: str | None = None
    numbers: int = 1
    bytes: int = 0
    whole: bool = False  # also for integers and booleans


KINDS = {
    "sum": Kind(whole=True), "mean": Kind(), "prod": Kind(), "any": Kind("bool", whole=True),
    "all": Kind("bool", whole=True), "amax": Kind(), "amin": Kind(), "norm1": Kind(), "norm2": Kind(), "norm_p": Kind(),
    "norm_max": Kind(), "argmax": Kind(bytes=8), "argmin": Kind(bytes=8), "var": Kind(numbers=0, bytes=24),
    "deviation": Kind(numbers=0, bytes=24), "logsumexp": Kind(numbers=2),
}  # fmt: skip


def settings(name: str, dtype: str, columns: bool) -> dict:
    """Returns the settings of `program.text("reduce", …)`."""
    floating = dtype in program.FLOATING
    out = "bool" if KINDS[name].out else "T" if floating else "long long"
    return {"OP": name, "OUT": out, **({} if floating else {"WHOLE": 1}), **({"COLUMNS": 1} if columns else {})}


@cache
def _function(name: str, kernel: str, dtype: str):
    return program.function("reduce", kernel, dtype, **settings(name, dtype, kernel.startswith("columns")))


def _wide(inner: int, some: int) -> int:
    """Returns how many threads of a block are along the columns: up to a warp."""
    return min(32, _power(-(-inner // some)))


def _power(n: int) -> int:
    """Returns the smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


class _Plan(NamedTuple):
    """The launches of a reduction: one from the array to the results, or two with tallies between them."""

    launches: list
    bytes: int  # of the tallies, or 0


@lru_cache(maxsize=4096)
def _plan(name: str, dtype: np.dtype, sizes: tuple, aligned: bool, number, values: bool, indices: bool) -> _Plan:
    """Plans a reduction of an array of these sizes: (outer, n, inner), or with two more between (see `_groups`).

    `number` is the op's; `values` and `indices` say which results are requested.
    """
    kind, passes = KINDS[name], []
    kept: Any = program.NUMBER.get(dtype.name, np.int64)
    size = np.dtype(kept).itemsize * kind.numbers
    tally = -(-size // 8) * 8 + kind.bytes if kind.bytes else size
    some = 16 // dtype.itemsize if aligned else 1
    count = sizes[1] if len(sizes) == 3 else sizes[1] * sizes[3]  # elements per result
    results = [ARRAY if values else _NOTHING, ARRAY if indices else _NOTHING, np.int64(count)]

    def add(way, outer, n, inner, splits=1):
        passes.append(_pass(name, dtype.name, way, outer, n, inner, splits, some, results, kept(number)))

    if len(sizes) == 3:
        outer, n, inner = sizes
        splits = _splits(outer, n, inner, some)
        if splits == 1:
            add("_whole", outer, n, inner)
            tallies = 0
        else:
            add("_split", outer, n, inner, splits)
            add("_join", outer, splits, inner)
            tallies = outer * splits * inner
    else:
        outer, n, middle, inner_n, inner = sizes
        add("_split", outer * n * middle, inner_n, inner)
        add("_join", outer, n, middle * inner)
        tallies = outer * n * middle * inner
    return _Plan(passes, tallies * tally)


def _splits(outer: int, n: int, inner: int, some: int) -> int:
    """Returns into how many pieces to split what is reduced: more than one if a pass would leave most of a GPU idle."""
    if inner > 1:
        some = some if inner % some == 0 else 1
        wide = _wide(inner, some)
        blocks, least = outer * -(-inner // (wide * some)), 8 * THREADS // wide
    else:
        blocks, least = outer, 8 * THREADS * some
    splits = min(-(-n // least), -(-BLOCKS // blocks))
    return 1 if splits < 2 else -(-n // _piece(n, splits))


def _pass(name, dtype, way, outer, n, inner, splits, some, results, number):
    """Prepares a launch: "_whole" from the array to results, "_split" to tallies, "_join" from tallies to results."""
    some = 1 if way == "_join" else some
    block: tuple
    given: tuple
    sizes, pieces = (np.int64(outer), np.int64(n)), (np.int64(splits), np.int64(_piece(n, splits)))
    if inner > 1:
        some = some if inner % some == 0 else 1
        wide = _wide(inner, some)
        grid, block = outer * splits * -(-inner // (wide * some)), (wide, THREADS // wide)
        kernel, given = f"columns_packed{way}" if some > 1 else f"columns{way}", (*sizes, np.int64(inner), *pieces)
    else:
        some = some if n % some == 0 else 1
        packed, block = np.bool_(some > 1), (THREADS,)
        if (n <= SHORT and splits == 1) or way == "_join":
            lanes = min(32, _power(-(-n // some)))
            grid = -(-outer * lanes // THREADS)
            kernel, given = f"short_rows{way}", (*sizes, np.int32(lanes), packed)
        else:
            grid, kernel, given = outer * splits, f"rows{way}", (*sizes, *pieces, packed)
    target = [ARRAY] if way == "_split" else results
    arguments = (ARRAY, *target, *given, number)
    return _function(name, kernel, dtype).prepared((min(grid, MOST_BLOCKS),), block, arguments)


def _piece(n: int, splits: int) -> int:
    """Returns the length of a piece, in whole packs."""
    return n if splits == 1 else -(-n // (splits * 64)) * 64


# --- dimensions -----------------------------------------------------------------------------------------------------


def _in_memory_order(x):
    """Permutes an array's dimensions to be contiguous; copies it if there are gaps. Returns it and the permutation."""
    if x.flags.c_contiguous:
        return x, None
    order = sorted(range(x.ndim), key=lambda d: -x.strides[d])
    permuted = x.transpose(order)
    return (permuted, order) if permuted.flags.c_contiguous else (cupy.ascontiguousarray(x), None)


def _groups(shape, dims) -> list[int]:
    """Merges the sizes of adjacent dimensions that are both kept or both reduced: [kept, reduced, kept, …, kept].

    >>> _groups((2, 3, 4, 5), (1, 2))
    [2, 12, 5]
    """
    sizes, reduced = [1], False
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if (d in dims) == reduced:
            sizes[-1] *= n
        else:
            sizes.append(n)
            reduced = not reduced
    return [*sizes, 1] if reduced else sizes if len(sizes) > 1 else [*sizes, 1, 1]


@lru_cache(maxsize=4096)
def _geometry(shape: tuple, dim: Any, keepdim: bool) -> tuple:
    """Returns (dimensions to reduce, merged sizes, the results' shape with ones, and as requested) of a plain array."""
    dims = tuple(range(len(shape))) if dim is None else (dim,) if dim.__class__ is int else tuple(dim)
    ones = tuple(1 if d in dims else n for d, n in enumerate(shape))
    return dims, tuple(_groups(shape, dims)), ones, ones if keepdim else tuple(
        n for d, n in enumerate(shape) if d not in dims
    )  # fmt: skip


def reduce(name: str, x, dim, keepdim: bool, number=0, *, dtype=None, values: bool = True, indices: bool = False):
    """Reduces over `dim`, which is None, an int or a tuple. Returns (results, their indices): None if not requested.

    Returns NotImplemented for arrays that the kernels do not support.
    """
    kind = KINDS[name]
    if not x.ndim or not x.size:
        return NotImplemented
    if program.NAME[x.dtype] not in program.NUMBER and not (kind.whole and program.NAME[x.dtype] in program.WHOLE):
        return NotImplemented
    if dim.__class__ is list:
        dim = tuple(dim)
    if indices and dim is None:
        x = cupy.ascontiguousarray(x)  # indices count in row-major order
    y, order = _in_memory_order(x)
    dims, sizes, ones, shape = _geometry(x.shape, dim, keepdim)
    last = dims
    if order is not None:
        last, sizes, ones, shape = _geometry(y.shape, tuple(order.index(d) for d in dims), True)
    if len(sizes) > 5:
        y = cupy.ascontiguousarray(y.transpose([d for d in range(y.ndim) if d not in last] + list(last)))
        n = math.prod(y.shape) // math.prod(ones)
        sizes = (y.size // n, n, 1)
    out = cupy.empty(shape, dtype or kind.out or x.dtype) if values else None
    at = cupy.empty(shape, I64) if indices else None
    launches, size = _plan(name, y.dtype, sizes, y.data.ptr % 16 == 0, number, values, indices)
    results = (out,) if at is None else (at,) if out is None else (out, at)
    if size:
        tallies = cupy.empty(size, np.uint8)
        launches[0](y, tallies)
        launches[1](tallies, *results)
    else:
        launches[0](y, *results)
    if order is None:
        return out, at
    return tuple(None if a is None else _shaped(a, order, dims, keepdim) for a in (out, at))


def _shaped(out, order, dims, keepdim):
    """Restores the input's order of dimensions, with the reduced ones removed or kept as ones."""
    out = out.transpose([order.index(d) for d in range(out.ndim)])
    return out if keepdim else out.reshape([n for d, n in enumerate(out.shape) if d not in dims])


def _values(result):
    return result if result is NotImplemented else result[0]


# --- the ops' kernels -----------------------------------------------------------------------------------------------


def sum_(x, dim, keepdim, dtype):
    """Computes the sum; integers and booleans in int64."""
    if program.NAME[x.dtype] in program.NUMBER:
        return _values(reduce("sum", x, dim, keepdim))
    if dtype is not None and x.dtype != I64:
        return NotImplemented
    return _values(reduce("sum", x, dim, keepdim, dtype=I64))


def mean(x, dim, keepdim, dtype):
    """Computes the sum divided by the number of elements."""
    return _values(reduce("mean", x, dim, keepdim))


def prod(x, dim, keepdim, dtype):
    """Computes the product of floats."""
    return _values(reduce("prod", x, dim, keepdim))


def _truth(name, x, dim, keepdim):
    return NotImplemented if x.dtype == np.uint8 else _values(reduce(name, x, dim, keepdim))


any_, all_ = partial(_truth, "any"), partial(_truth, "all")


def _extreme(name, x, dim, keepdim):
    return _values(reduce(name, x, dim, keepdim))


amax, amin = partial(_extreme, "amax"), partial(_extreme, "amin")


def max_all(x):
    """Returns the largest of all elements."""
    return amax(x, None, False)


def min_all(x):
    """Returns the smallest of all elements."""
    return amin(x, None, False)


def arg_extreme(x, dim, keepdim, name):
    """Returns the index of the first largest ("argmax") or smallest element, or of the first nan."""
    found = reduce(name, x, dim, keepdim, values=False, indices=True)
    return found if found is NotImplemented else found[1]


def extreme_with_index(x, dim, keepdim, name):
    """Returns the largest ("max") or smallest elements along `dim`, and the first index of each."""
    return reduce(f"arg{name}", x, dim, keepdim, indices=True)


def var(x, dim, correction, keepdim):
    """Computes the mean squared distance from the mean, with the divisor (n - correction), or 0 if that is negative."""
    return _values(reduce("var", x, dim, keepdim, correction))


def std(x, dim, correction, keepdim):
    """Computes the square root of `var`."""
    return _values(reduce("deviation", x, dim, keepdim, correction))


def _with_mean(spread, x, dim, correction, keepdim):
    """Computes the measure `spread` and the mean."""
    first = spread(x, dim, correction, keepdim)
    second = NotImplemented if first is NotImplemented else mean(x, dim, keepdim, None)
    return NotImplemented if second is NotImplemented else (first, second)


var_mean, std_mean = partial(_with_mean, var), partial(_with_mean, std)


def vector_norm(x, ord, dim, keepdim, dtype):
    """Computes (Σ |x|^ord)^(1/ord), or the largest absolute value for inf."""
    name = {1: "norm1", 2: "norm2", math.inf: "norm_max"}.get(ord, "norm_p")
    if name == "norm_p" and (ord == 0 or ord == -math.inf):
        return NotImplemented
    return _values(reduce(name, x, dim, keepdim, ord))


def logsumexp(x, dim, keepdim):
    """Computes log Σ exp(x) without overflow."""
    return _values(reduce("logsumexp", x, dim, keepdim))
