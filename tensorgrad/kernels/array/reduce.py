"""Reductions over plain arrays. `dim` is None (everything), a tuple, or one dimension; counted from the front.

Sums of float32 use BLAS where that is faster: a product with ones takes a third of the time of NumPy's pairwise loop,
is as exact (BLAS keeps 32 partial sums, and rows of a bounded length are summed separately), and starts sooner.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tensorgrad.dtypes import F32, scalar_type
from tensorgrad.system.float_errors import ignored

from .blocks import row_dot

I64 = np.dtype("int64")
_SMALL = 1024  # elements below which one product sums everything
_ROW = 1024  # longer sums are split into rows of this length, whose sums are added pairwise


@lru_cache(maxsize=256)
def _ones(n):
    ones = np.ones(n, F32)
    ones.flags.writeable = False
    return ones


def two_bytes(x) -> bool:
    return x.dtype.itemsize == 2 and x.dtype.kind not in "iu"


def count(shape, dim) -> int:
    """Returns how many elements each result is reduced from."""
    total = 1
    for d in range(len(shape)) if dim is None else (dim,) if dim.__class__ is int else dim:
        if shape:
            total *= shape[d]
    return total


# --- sums ----------------------------------------------------------------------------------------------------------


def sum_(xp, x, dim, keepdim, dtype):
    """The sum; integers and booleans in int64, two-byte floats accumulated in float32."""
    if x.dtype is F32:
        if xp is np:
            if dim is None and not keepdim:
                return np.vdot(x, _ones(x.size)) if x.size <= _SMALL else _sum_all(x)
            if x.ndim > 1 and dim.__class__ is tuple:
                total = _sum_one(x, dim[0]) if len(dim) == 1 else _sum_some(x, dim)
                return total.reshape([1 if d in dim else n for d, n in enumerate(x.shape)]) if keepdim else total
        return xp.add.reduce(x, dim, None, None, keepdim)
    if x.dtype.kind in "iub":
        return xp.add.reduce(x, axis=dim, keepdims=keepdim, dtype=I64 if dtype is None else x.dtype)
    if two_bytes(x):
        return xp.asarray(sum_(xp, x.astype(np.float32), dim, keepdim, None)).astype(x.dtype)
    return xp.add.reduce(x, axis=dim, keepdims=keepdim)


def _sum_all(x):
    if not x.flags.c_contiguous or x.size < 4 * _ROW:
        return np.add.reduce(x, None)
    flat = x.reshape(-1)
    whole = flat.size - flat.size % _ROW
    total = np.add.reduce(flat[:whole].reshape(-1, _ROW) @ _ones(_ROW))
    return total if whole == flat.size else total + np.add.reduce(flat[whole:])


def _sum_one(x, dim):
    """Sums over one dimension of a float32 array of two or more."""
    n = x.shape[dim]
    if n <= 4 * _ROW and x.size:
        if x.ndim == 2:
            if not dim:
                return np.dot(_ones(n), x)
            if n <= _ROW:
                return np.dot(x, _ones(n))
        elif dim == x.ndim - 1 and 16 <= n <= _ROW and x.flags.c_contiguous:
            return np.dot(x.reshape(-1, n), _ones(n)).reshape(x.shape[:-1])
    return np.add.reduce(x, dim)


def _sum_some(x, dim):
    """Sums over several dimensions of a float32 array: the trailing ones first, as rows."""
    if len(dim) == x.ndim:
        return sum_(np, x, None, False, None)
    kept = x.ndim
    while kept - 1 in dim:
        kept -= 1
    if kept == x.ndim or not x.size or not x.flags.c_contiguous:
        return np.add.reduce(x, dim)
    n = x[(0,) * kept].size
    part = _part(n)
    rows = np.dot(x.reshape(-1, part), _ones(part)) if part >= 16 else np.add.reduce(x.reshape(-1, n), 1)
    rows = rows.reshape((*x.shape[:kept], -1))
    return np.add.reduce(rows, (*(d for d in dim if d < kept), kept))


@lru_cache(maxsize=256)
def _part(n):
    """Returns the largest divisor of n that may be the length of a summed row."""
    return next(d for d in range(min(n, _ROW), 0, -1) if n % d == 0)


def mean(xp, x, dim, keepdim, dtype):
    """The sum divided by the number of elements. Raises: RuntimeError for integers."""
    if x.dtype.kind in "iub":
        raise RuntimeError(
            f"mean(): could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {scalar_type(x)}"
        )
    if two_bytes(x):
        return xp.asarray(mean(xp, x.astype(np.float32), dim, keepdim, None)).astype(x.dtype)
    total = sum_(xp, x, dim, keepdim, None)
    n = count(x.shape, dim)
    if n:
        return xp.true_divide(total, x.dtype.type(n))
    with ignored():
        return xp.true_divide(total, x.dtype.type(0))


def nansum(xp, x, dim, keepdim, dtype):
    """The sum of the elements that are not nan."""
    if x.dtype.kind in "iub":
        return sum_(xp, x, dim, keepdim, dtype)
    return sum_(xp, xp.where(xp.isnan(x), x.dtype.type(0), x), dim, keepdim, None)


def prod(xp, x, dim, keepdim, dtype):
    """The product; integers and booleans in int64."""
    if x.dtype.kind in "iub":
        return xp.multiply.reduce(x, axis=dim, keepdims=keepdim, dtype=I64 if dtype is None else x.dtype)
    if two_bytes(x):
        return _prod_of_half(xp, x, dim, keepdim)
    return xp.multiply.reduce(x, axis=dim, keepdims=keepdim)


def _prod_of_half(xp, x, dim, keepdim):
    """The product of two-byte floats, each rounded. Many that lie side by side are multiplied in PyTorch's order: as 4
    vectors of 16 numbers, then those in pairs, then the 16."""
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if dim.__class__ is int else tuple(dim)
    dims = tuple(sorted(d % x.ndim for d in dims)) if x.ndim else ()
    rest = [n for d, n in enumerate(x.shape) if d not in dims]
    rows = xp.ascontiguousarray(xp.moveaxis(x, dims, range(len(dims)))).reshape(-1, math.prod(rest))
    whole = len(rows) // 64 * 64 if dims and dims[-1] == x.ndim - 1 else 0
    parts = rows[whole:]
    if whole:
        vectors = xp.multiply.reduce(rows[:whole].reshape(-1, 4, 16, rows.shape[1]), axis=0)
        parts = xp.concatenate([(vectors[0] * vectors[1]) * (vectors[2] * vectors[3]), parts])
    out = xp.ones(rows.shape[1], x.dtype)
    for part in parts:
        out = out * part
    return out.reshape([1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else rest)


def prod_of_others(xp, x, dim):
    """The product of all other elements along `dim`, for each element, by products from both ends.

    So zeros need no special case.
    """
    if not x.ndim:
        return xp.ones_like(x)
    x = xp.moveaxis(x, dim, 0)
    n = x.shape[0]
    out = xp.ones_like(x)
    if n:
        xp.multiply.accumulate(x[:-1], 0, None, out[1:])
        after = xp.multiply.accumulate(x[:0:-1], 0)[::-1]
        out[:-1] *= after
    return xp.ascontiguousarray(xp.moveaxis(out, 0, dim))


def _truth(xp, x, result):
    return result.astype(x.dtype) if x.dtype == np.uint8 else result  # uint8 stays uint8, as in PyTorch


def any_(xp, x, dim, keepdim):
    """Whether any element is nonzero."""
    return _truth(xp, x, xp.asarray(xp.any(x, axis=dim, keepdims=keepdim)))


def all_(xp, x, dim, keepdim):
    """Whether all elements are nonzero."""
    return _truth(xp, x, xp.asarray(xp.all(x, axis=dim, keepdims=keepdim)))


def count_nonzero(xp, x, dim):
    """The number of nonzero elements."""
    return xp.add.reduce(x != 0, axis=dim, dtype=I64)


# --- extrema -------------------------------------------------------------------------------------------------------


def check_not_empty(name, x, dim, error=IndexError):
    """Raises: IndexError if an empty dimension is to be reduced by an op without a neutral element."""
    for d in (dim,) if dim.__class__ is int else dim:
        if x.ndim and not x.shape[d]:
            raise error(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _extreme(xp, name, largest, x, dim, keepdim):
    if x.dtype.kind == "c":
        kind = "all" if name in ("max", "min") else "values_cpu"
        raise NotImplementedError(f"\"{'max' if largest else 'min'}_{kind}\" not implemented for '{scalar_type(x)}'")
    if not x.size:
        if dim is None:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                "with the 'dim' argument."
            )
        check_not_empty(name, x, dim)
    if two_bytes(x):
        lifted = _extreme(xp, name, largest, x.astype(np.float32), dim, keepdim)
        return xp.asarray(lifted).astype(x.dtype)
    if xp is np:
        fold: Any = np.maximum.reduce if largest else np.minimum.reduce
        return fold(x, dim, None, None, keepdim)
    return (xp.amax if largest else xp.amin)(x, axis=dim, keepdims=keepdim)


def amax(xp, x, dim, keepdim):
    """The largest element; nan if there is one."""
    return _extreme(xp, "amax", True, x, dim, keepdim)


def amin(xp, x, dim, keepdim):
    """The smallest element; nan if there is one."""
    return _extreme(xp, "amin", False, x, dim, keepdim)


def max_all(xp, x):
    """The largest of all elements."""
    return _extreme(xp, "max", True, x, None, False)


def min_all(xp, x):
    """The smallest of all elements."""
    return _extreme(xp, "min", False, x, None, False)


def arg_extreme(xp, x, dim, keepdim, name):
    """The index of the first largest ("argmax") or smallest element, or of the first nan.

    It is that in the flattened array if `dim` is None.
    """
    if x.dtype.kind in "cb":
        raise RuntimeError(f"{name}(): does not support {'complex' if x.dtype.kind == 'c' else 'bool'} input")
    if dim is None and not x.size:
        raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
    return _arg(xp, name, x, dim, keepdim)


def _arg(xp, name, x, dim, keepdim):
    if not x.size and dim is not None:
        check_not_empty(name, x, dim)
    if not x.ndim:
        return xp.zeros((), I64)
    if two_bytes(x):
        x = x.astype(np.float32)
    found = x.argmin(dim) if name.endswith("min") else x.argmax(dim)
    if keepdim:
        found = xp.asarray(found).reshape([1 if dim is None or d == dim else n for d, n in enumerate(x.shape)])
    return found


def extreme_with_index(xp, x, dim, keepdim, name):
    """The largest ("max") or smallest elements along `dim`, and the first index of each."""
    if x.dtype.kind == "c":
        raise RuntimeError(f"{name}(): does not support complex input")
    index = _arg(xp, name, x, dim, keepdim)
    if not x.ndim:
        return xp.array(x), index
    if xp is np and x.ndim == 2 and dim == 1 and x.flags.c_contiguous and x.size <= _SMALL:
        values = x.reshape(-1).take(index.reshape(-1) + _starts(*x.shape))  # a third of the time of maximum.reduce
        return values.reshape(index.shape), index
    return _extreme(xp, name, name == "max", x, dim, keepdim), index


@lru_cache(maxsize=256)
def _starts(rows, width):
    """Where the rows of a matrix begin."""
    return np.arange(0, rows * width, width)


def _positions(xp, shape, dim, index):
    """Returns positions in a contiguous array of `shape` for `index` (of as many dimensions) along `dim`."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    where = index * strides[dim]
    for i, n in enumerate(shape):
        if i != dim and n > 1:
            where = where + xp.arange(0, n * strides[i], strides[i]).reshape((n,) + (1,) * (len(shape) - 1 - i))
    return where


def pick(xp, x, index, dim, folded):
    """Returns the elements at `index` along `dim`; `folded`: the result (and `index`) lacks that dimension."""
    if not x.ndim:
        return xp.array(x)
    if not x.size:
        return xp.zeros(index.shape, x.dtype)
    if folded:
        index = xp.expand_dims(index, dim)
    picked = x.reshape(-1).take(_positions(xp, x.shape, dim, index))
    return picked.reshape(picked.shape[:dim] + picked.shape[dim + 1 :]) if folded else picked


def place(xp, g, index, shape, dim, folded, repeats):
    """Writes `g` into zeros of `shape` where `pick` read it; `repeats`: positions may repeat, and get the sum."""
    if not shape:
        return xp.array(g)
    if folded:
        index, g = xp.expand_dims(index, dim), xp.expand_dims(g, dim)
    out = xp.zeros(shape, g.dtype)
    if not out.size:
        return out
    where = _positions(xp, shape, dim, index)
    if repeats and two_bytes(g):
        return place(xp, g.astype(np.float32), index, shape, dim, False, True).astype(g.dtype)
    if repeats:
        xp.add.at(out.reshape(-1), where.reshape(-1), xp.ascontiguousarray(g).reshape(-1))
    else:
        out.reshape(-1)[where] = g
    return out


# --- variance and norms ----------------------------------------------------------------------------------------------


def spread(xp, x, shape, dim, keepdim):
    """Expands a reduction's result to the input's `shape`, as a view."""
    from tensorgrad.kernels.array.shape import expand

    if not keepdim and dim is not None and shape:
        dims = (dim,) if dim.__class__ is int else dim
        x = x[tuple(None if d in dims else slice(None) for d in range(len(shape)))]
    return expand(xp, x, shape)


def sum_backward(xp, g, input_shape, dim, keepdim):
    """The gradient of a sum: `g` at every element that was summed, without a copy where a view will do."""
    if dim is None and not g.ndim and xp is np:  # the most common loss
        if math.prod(input_shape) <= _SMALL:  # NumPy fills few elements faster than it computes with strides of 0
            result = np.empty(input_shape, g.dtype)
            result.fill(g)
            return result
        result = np.ndarray(input_shape, g.dtype, g, 0, (0,) * len(input_shape))
    else:
        result = spread(xp, g, input_shape, dim, keepdim)
    return result.copy() if result.size == g.size else result


def mean_backward(xp, g, input_shape, dim, keepdim):
    """The gradient of a mean, in memory of its own, as PyTorch's is: `g` spread and then divided by the count."""
    divided = xp.asarray(xp.true_divide(g, count(input_shape, dim))).astype(g.dtype, copy=False)
    result = xp.empty(input_shape, g.dtype)
    result[...] = spread(xp, divided, input_shape, dim, keepdim)
    return result


def var(xp, x, dim, correction, keepdim, root=False):
    """Mean squared distance from the mean, with the divisor (n - correction), or 0 if that is negative.

    Squares that float32 cannot represent, or only with few digits, are summed in double precision.
    """
    if two_bytes(x):
        return xp.asarray(var(xp, x.astype(np.float32), dim, correction, keepdim, root)).astype(x.dtype)
    kind = x.real.dtype.type
    with ignored():
        total = _squares_around_mean(xp, x, dim, keepdim)
        if kind is np.float32 and (xp is not np or not _in_full_precision(total)):
            wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
            total = _squares_around_mean(xp, wide, dim, keepdim)
        made = total / total.dtype.type(max(count(x.shape, dim) - correction, 0))
        return xp.asarray(np.sqrt(made) if root else made).astype(kind)


std = partial(var, root=True)


def var_mean(xp, x, dim, correction, keepdim):
    """Variance and mean."""
    return var(xp, x, dim, correction, keepdim), mean(xp, x, dim, keepdim, None)


def std_mean(xp, x, dim, correction, keepdim):
    """Standard deviation and mean."""
    return std(xp, x, dim, correction, keepdim), mean(xp, x, dim, keepdim, None)


def _in_full_precision(squares) -> bool:
    """Returns whether sums of squares are in the range where float32 has full precision."""
    return not squares.size or bool(squares.min() > 1e-25 and squares.max() < np.inf)


def _squares_around_mean(xp, x, dim, keepdim):
    away = x - xp.add.reduce(x, axis=dim, keepdims=True) / x.real.dtype.type(count(x.shape, dim))
    if x.dtype.kind == "c":
        squares = away.real * away.real + away.imag * away.imag
        return xp.add.reduce(squares, axis=dim, keepdims=keepdim)
    if dim is None and not keepdim and xp is np:
        away = away.reshape(-1)
        return row_dot(np, away, away)
    return xp.add.reduce(xp.multiply(away, away, away if away.ndim else None), axis=dim, keepdims=keepdim)


def vector_norm(xp, x, ord, dim, keepdim, dtype):
    """(Σ |x|^ord)^(1/ord); the largest absolute value for inf, the smallest for -inf, the number of nonzeros for 0."""
    if two_bytes(x):
        return xp.asarray(vector_norm(xp, x.astype(np.float32), ord, dim, keepdim, None)).astype(x.dtype)
    if not x.size and (ord < 0 or ord == np.inf):
        _norm_of_nothing(x, ord, dim)
    kind = x.real.dtype.type
    with ignored():
        if ord == 2:
            if dim is None and not keepdim and xp is np and x.dtype.kind != "c" and x.size < 4 * _ROW:
                flat = x.ravel()
                return np.sqrt(np.dot(flat, flat))
            squares = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
            return xp.sqrt(sum_(xp, xp.asarray(squares), dim, keepdim, None))
        if ord == 0:
            return xp.asarray(xp.add.reduce(x != 0, axis=dim, keepdims=keepdim, dtype=I64)).astype(kind)
        size = xp.asarray(xp.abs(x))
        if ord == np.inf:
            return (xp.amax if x.size else _sum_of_nothing(xp))(size, axis=dim, keepdims=keepdim)
        if ord == -np.inf:
            return xp.amin(size, axis=dim, keepdims=keepdim)
        if ord == 1:
            return sum_(xp, size, dim, keepdim, None)
        powers = xp.asarray(xp.power(size, kind(ord)))
        return xp.power(sum_(xp, powers, dim, keepdim, None), kind(1.0 / ord))


def _sum_of_nothing(xp):
    return xp.sum


def _norm_of_nothing(x, ord, dim):
    """Raises: RuntimeError if the norm of no elements is undefined."""
    text = f"{ord:g}"
    if dim is None:
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {text} norm on an empty tensor because the operation does not "
            "have an identity"
        )
    for d in dim:
        if not x.shape[d]:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {text} norm on the dimension {d} because this dimension is "
                "empty and the operation does not have an identity"
            )
