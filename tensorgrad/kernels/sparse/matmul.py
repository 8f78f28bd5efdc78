"""Products with sparse matrices.

A product with a dense matrix goes row by row: row i of the result is the sum, over the stored elements of row i, of
the element times a row of the dense matrix. A product of two sparse matrices lists all products of elements and adds
those that belong to the same place.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorgrad.dtypes import from_numpy_dtype, scalar_type
from tensorgrad.kernels.sparse.convert import coo, csr, dense, like, lines_of
from tensorgrad.kernels.sparse.coordinates import coalesced
from tensorgrad.kernels.sparse.lines import Lines, by_columns, by_rows, transposed, unblocked
from tensorgrad.kernels.sparse.shape import permute
from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.storage.sparse import COOArray, CSCArray, CSRArray, SparseArray

AT_ONCE = 1 << 22  # products held in memory at a time
MUCH = 1 << 16  # products from which on SciPy is used where it is installed, and no compiled kernel
IN_CACHE = 1 << 17  # numbers that are gathered at a time


def times(lines: Lines, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A matrix (n, k), given line by line, times a dense one (k, m)."""
    b = np.ascontiguousarray(b)
    made = run_compiled("sparse_product", values.size * b.shape[1], lines.starts, lines.places, values, b)
    if made is not NotImplemented:
        return made
    much = values.size * b.shape[1] >= MUCH and values.dtype == b.dtype and values.dtype.char in "fdFD"
    if much and _scipy() is not None:
        return _by_scipy(lines, values, b)
    starts, (n, m) = lines.starts, (len(lines.starts) - 1, b.shape[1])
    made = np.zeros((n, m), np.result_type(values, b))
    if not m or not values.size:
        return made
    if m > 3 and made.dtype.kind in "fc":
        return _by_length(lines, values, b, made)
    step, begin = max(1, AT_ONCE // m), 0
    while begin < n:  # as many lines at a time as have `step` elements, at least one
        first = starts[begin]
        end = max(begin + 1, int(np.searchsorted(starts[1:], first + step, side="right")))
        part = slice(first, starts[end])
        some = np.flatnonzero(np.diff(starts[begin : end + 1]))
        if len(some):
            products = values[part, None] * b[lines.places[part]]
            made[begin + some] = np.add.reduceat(products, starts[begin:end][some] - first, axis=0)
        begin = end
    return made


def _by_scipy(lines: Lines, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same by SciPy, whose loops are compiled."""
    if lines.short is None:
        wide = np.int32 if max(len(lines.places), len(b)) < 2**31 else np.int64
        lines.short = lines.places.astype(wide), lines.starts.astype(wide)
    made = _scipy().csr_array((values, *lines.short), shape=(len(lines.starts) - 1, len(b)))
    return np.asarray(made @ b)


@cache
def _scipy() -> Any:
    """SciPy's sparse matrices, or None if it is not installed."""
    try:
        import scipy.sparse
    except ImportError:
        return None
    return scipy.sparse


def _by_length(lines: Lines, values: np.ndarray, b: np.ndarray, made: np.ndarray) -> np.ndarray:
    """The same for lines of one length after the other: each of them times its rows of `b` is a small dense product."""
    lengths, m = np.diff(lines.starts), b.shape[1]
    order = np.argsort(lengths, kind="stable")
    for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        count = int(lengths[alike[0]]) if len(alike) else 0
        step = max(1, IN_CACHE // max(count * m, 1))
        for begin in range(0, len(alike) if count else 0, step):
            some = alike[begin : begin + step]
            here = lines.starts[some, None] + np.arange(count)
            made[some] = np.matmul(values[here][:, None], b[lines.places[here]])[:, 0]
    return made


def _rows_times(a: Any, b: np.ndarray) -> np.ndarray:
    """a @ b with a sparse a."""
    a = unblocked(a)
    lines = by_rows(a)
    return times(lines, lines.values_of(a), b)


def _columns_times(a: Any, b: np.ndarray) -> np.ndarray:
    """a.T @ b with a sparse a."""
    a = unblocked(a)
    lines = by_columns(a)
    return times(lines, lines.values_of(a), b)


def check(a: Any, b: Any) -> None:
    """Raises: RuntimeError for shapes or dtypes of matrices that cannot be multiplied."""
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"mm: Expected two matrices, got {a.ndim}-D and {b.ndim}-D tensors")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype != b.dtype:
        one, other = (scalar_type(from_numpy_dtype(x.dtype)) for x in (a, b))
        if isinstance(a, SparseArray) and isinstance(b, SparseArray):
            raise RuntimeError(f"mat1 dtype {one} does not match mat2 dtype {other}")
        raise RuntimeError(f"expected scalar type {one} but found {other}")


def mm(a: Any, b: Any) -> Any:
    """The product of two matrices, of which one or both are sparse; sparse (in the layout of `a`) if both are."""
    check(a, b)
    if isinstance(a, SparseArray) and isinstance(b, SparseArray):
        return _of_both(a, b)
    if isinstance(a, SparseArray):
        return _rows_times(a, b)
    return np.ascontiguousarray(_columns_times(b, a.T).T)


def _of_both(a: Any, b: Any) -> Any:
    x, y = csr(a), csr(b)
    lengths = np.diff(y.compressed)[x.plain]
    rows = np.repeat(lines_of(x.compressed), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    place = np.repeat(y.compressed[:-1][x.plain], lengths) + within
    values = np.repeat(x.values, lengths) * y.values[place]
    made = coalesced(COOArray(np.stack([rows, y.plain[place]]).astype(np.int64), values, (a.shape[0], b.shape[1])))
    return like(made, x if a.__class__ is CSCArray else a)  # of CSC matrices PyTorch gives CSR


def mv(a: Any, v: Any) -> Any:
    """A matrix times a vector."""
    if a.ndim != 2 or v.ndim != 1:
        raise RuntimeError(
            f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {a.ndim}Tensor Dim: {v.ndim}"
        )
    if a.shape[1] != v.shape[0]:
        raise RuntimeError(
            f"mv: expected self.size(-1) == vec.size(-1), got shapes {list(a.shape)} and {list(v.shape)}"
        )
    return mm(a, v.reshape(-1, 1)).reshape(-1)


def addmv(c: Any, a: Any, v: Any, beta: Any, alpha: Any) -> Any:
    """beta * c + alpha * (a @ v)"""
    product = np.multiply(mv(a, v), alpha, dtype=a.dtype)
    return product + np.multiply(c, beta, dtype=c.dtype) if beta != 0 else product


def matmul(a: Any, b: Any) -> Any:
    """`a @ b`: matrices, a matrix and a vector, or a batch (see `bmm`). A sparse vector is taken as a dense one."""
    if isinstance(a, SparseArray) and a.ndim == 1:
        return matmul(dense(a), b)
    if isinstance(b, SparseArray) and b.ndim == 1:
        return matmul(a, dense(b)) if isinstance(a, SparseArray) else np.matmul(a, dense(b))
    if not isinstance(a, SparseArray) and not isinstance(b, SparseArray):
        return np.matmul(a, b)
    if a.ndim == 2 and b.ndim == 1:
        return mv(a, b)
    if a.ndim == 1 and b.ndim == 2:
        return mv(transposed(coo(b)), a)
    return bmm(a, b) if a.ndim == 3 and b.ndim == 3 else mm(a, b)


def nt(a: Any, b: Any) -> Any:
    """a @ b.T, also of batches"""
    if a.ndim == 3:
        return bmm(a, np.swapaxes(b, 1, 2))
    if isinstance(a, SparseArray):
        return mm(a, transposed(coo(b)) if isinstance(b, SparseArray) else b.T)
    return np.ascontiguousarray(_rows_times(b, a.T).T)


def tn(a: Any, b: Any) -> Any:
    """a.T @ b, also of batches"""
    if b.ndim == 3:
        return bmm(permute(coo(a), [0, 2, 1]), b)
    if not isinstance(b, SparseArray):
        return _columns_times(a, b)
    return mm(transposed(coo(a)) if isinstance(a, SparseArray) else a.T, b)


def linear(x: Any, weight: Any, bias: Any) -> Any:
    """x @ weight.T + bias, of matrices or a vector and a matrix."""
    flat = x if isinstance(x, SparseArray) or x.ndim == 2 else x.reshape(-1, x.shape[-1])
    made = nt(flat, weight)
    made = made if bias is None else made + bias
    return made if made.ndim == x.ndim else made.reshape(*x.shape[:-1], made.shape[-1])


def bmm(a: Any, b: Any) -> np.ndarray:
    """The products of the matrices of a sparse batch (b, n, k) and a dense one (b, k, m)."""
    if isinstance(b, SparseArray) or a.ndim != 3 or b.ndim != 3:
        raise RuntimeError("bmm: expected a sparse batch (b, n, k) times a dense one (b, k, m)")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(f"bmm: shapes cannot be multiplied: {list(a.shape)} and {list(b.shape)}")
    count, n, k = a.shape
    x = coalesced(coo(a))
    batch, rows, columns = x.indices  # one matrix with the others along its diagonal
    wide = COOArray(np.stack([batch * n + rows, batch * k + columns]), x.values, (count * n, count * k), coalesced=True)
    return _rows_times(wide, b.reshape(count * k, b.shape[2])).reshape(count, n, b.shape[2])


def addmm(c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * c + alpha * (a @ b); with beta 0, c does not matter, even where it is nan."""
    product = mm(a, b)
    if isinstance(product, SparseArray):
        from tensorgrad.kernels.sparse.pointwise import add

        scaled = product.with_values(np.multiply(product.values, alpha, dtype=product.dtype))
        if not isinstance(c, SparseArray):
            return add(_times(c, beta), scaled)
        return add(c.with_values(_times(c.values, beta)), scaled)
    if isinstance(c, SparseArray):
        raise RuntimeError("addmm: expected a dense tensor to add to a dense product, got a sparse one")
    product = np.multiply(product, alpha, dtype=product.dtype) if alpha != 1 else product
    return product + _times(c, beta)


def _times(c: np.ndarray, beta: Any) -> np.ndarray:
    return np.multiply(c, beta, dtype=c.dtype) if beta != 0 else np.zeros_like(c)


def stored_rows(product: np.ndarray, sparse: COOArray) -> COOArray:
    """The rows of a dense product in which its sparse factor stores elements, as a hybrid array."""
    rows = np.unique(sparse.indices[0])
    return COOArray(rows[None], product[rows], product.shape)


def sampled(c: Any, a: np.ndarray, b: np.ndarray, beta: Any, alpha: Any) -> Any:
    """alpha * (a @ b), only where `c` stores elements, plus beta * c."""
    x = coalesced(coo(c)) if c.__class__ is COOArray else coo(c)
    rows, columns = x.indices[-2:]
    values = np.empty(len(rows), x.dtype)
    if a.ndim == 2:
        given = rows, columns, np.ascontiguousarray(a), np.ascontiguousarray(b.T)
        made = run_compiled("sparse_sample", len(rows) * a.shape[-1], *given)
        if made is not NotImplemented:
            return like(x.with_values((alpha * made + beta * x.values).astype(x.dtype, copy=False)), c)
    step = max(1, AT_ONCE // max(a.shape[-1], 1))
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        place = tuple(x.indices[:-2, part])
        left = a[(*place, rows[part])]
        right = np.swapaxes(b, -1, -2)[(*place, columns[part])]
        values[part] = (left * right).sum(-1)
    return like(x.with_values((alpha * values + beta * x.values).astype(x.dtype, copy=False)), c)


# --- products combined otherwise than by sums ------------------------------------------------------------------------


def reduced(a: CSRArray, b: np.ndarray, reduce: str) -> tuple[np.ndarray, np.ndarray]:
    """The combined products (n, m), and for "amax" and "amin" which stored element gave each (-1: none)."""
    check(a, b)
    n, m = a.shape[0], b.shape[1]
    counts = np.diff(a.compressed)
    chosen = np.full((n, m) if reduce.startswith("a") else (0, 0), -1, np.int64)
    if reduce in ("sum", "mean"):
        made = _rows_times(a, b)
        if reduce == "mean":
            made = (made / np.maximum(counts, 1)[:, None]).astype(made.dtype, copy=False)
        return made, chosen
    made = np.zeros((n, m), a.dtype)
    some = np.flatnonzero(counts)
    if not len(some) or not m:
        return made, chosen
    products = a.values[:, None] * b[a.plain]
    starts = a.compressed[:-1][some]
    combine = np.maximum if reduce == "amax" else np.minimum
    made[some] = combine.reduceat(products, starts, axis=0)
    best = np.repeat(made[some], counts[some], 0)
    hit = (products == best) | (products != products)
    place = np.where(hit, np.arange(len(products))[:, None], len(products))
    chosen[some] = np.minimum.reduceat(place, starts, axis=0)
    return made, chosen


def _weights(g: np.ndarray, a: CSRArray, reduce: str) -> np.ndarray:
    """The gradient of each row's sum of products."""
    if reduce == "mean":
        return (g / np.maximum(np.diff(a.compressed), 1)[:, None]).astype(g.dtype, copy=False)
    return g


def reduced_values_grad(g: np.ndarray, b: np.ndarray, a: CSRArray, chosen: np.ndarray, reduce: str) -> np.ndarray:
    """The gradient of the stored values."""
    made = np.zeros(len(a.values), a.dtype)
    if reduce.startswith("a"):
        rows, columns = np.nonzero(chosen >= 0)
        place = chosen[rows, columns]
        weights = g[rows, columns] * b[a.plain[place], columns].conj()
        return np.bincount(place, weights, len(made)).astype(a.dtype)
    rows = lines_of(a.compressed)
    return (_weights(g, a, reduce)[rows] * b[a.plain].conj()).sum(1).astype(a.dtype, copy=False)


def reduced_other_grad(g: np.ndarray, a: CSRArray, chosen: np.ndarray, reduce: str, shape: tuple) -> np.ndarray:
    """The gradient of the dense factor."""
    if reduce.startswith("a"):
        made = np.zeros(shape, g.dtype)
        rows, columns = np.nonzero(chosen >= 0)
        place = chosen[rows, columns]
        keys = a.plain[place].astype(np.int64) * shape[1] + columns
        made.reshape(-1)[:] = np.bincount(keys, g[rows, columns] * a.values[place].conj(), made.size)
        return made
    return _columns_times(a.with_values(a.values.conj()), _weights(g, a, reduce))
