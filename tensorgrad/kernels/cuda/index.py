"""Reading at indices and adding at indices: rows of tables, and single elements (`sources/index.cu`).

Sums of 16-bit floats are kept in float32. If an index occurs more than once, the order of additions varies, and with it
the last digits; after `torch.use_deterministic_algorithms(True)` the indices are sorted first, and the order is fixed.
Indices out of bounds raise late (see `bounds.py`).
"""

from __future__ import annotations

import math

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import bounds, program
from tensorgrad.settings import SETTINGS

# The type of sums for each dtype; other dtypes use CuPy.
SUMS = {"float32": "float", "float64": "double", "float16": "float", "bfloat16": "float", "int32": "int",
        "int64": "long long"}  # fmt: skip
KEPT = {"float": np.float32, "double": np.float64, "int": np.int32, "long long": np.int64}


def _launch(name: str, dtype: np.dtype, index, pack: int = 1, sums: str = "int", scaled: int = 0):
    kind = "int" if index.dtype.itemsize == 4 else "long long"
    return program.function("index", name, program.NAME[dtype], I=kind, C=sums, PACK=pack, SCALED=scaled)


def _indices(index):
    return cupy.ascontiguousarray(index) if program.NAME[index.dtype] in ("int64", "int32") else index.astype(np.int64)


def _sizes(shape, dim: int) -> tuple[int, int, int]:
    """Returns (outer, n, inner) of a shape; a 0-d shape counts as one dimension of size 1."""
    shape = shape or (1,)
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _rows_of_block(width: int) -> tuple[int, int]:
    """Returns (threads of a row, rows of a block) for rows of `width` pieces."""
    across = min(256, 1 << max(width - 1, 0).bit_length())
    return across, 256 // across


def _integers(*values) -> tuple:
    return tuple(np.int64(v) for v in values)


# --- reading ---------------------------------------------------------------------------------------------------------


def _units(x, out, inner: int) -> tuple[np.dtype, int, int]:
    """Returns (type, pack, count) of the largest pieces, up to 16 bytes, in which rows of any dtype can be copied."""
    size = math.gcd(inner * x.itemsize, 16, x.data.ptr, out.data.ptr)
    return np.dtype(f"int{8 * min(size, 8)}"), size // min(size, 8), inner * x.itemsize // size


def _take(x, dim: int, index, shape, least: int):
    """Takes x's slices `index` along `dim`, as an array of `shape`."""
    x, index = cupy.ascontiguousarray(x), _indices(index)
    out = cupy.empty(shape, x.dtype)
    outer, n, inner = _sizes(x.shape, dim)
    if out.size:
        kind, pack, units = _units(x, out, inner)
        across, down = _rows_of_block(units)
        rows = outer * index.size
        numbers = _integers(rows, index.size, n, units, least, dim)
        launch = _launch("take_rows", kind, index, pack)
        launch((-(-rows // down),), (across, down), (_bits(x, kind), index, _bits(out, kind), *numbers, bounds.note()))
    return out


def _bits(x, kind: np.dtype):
    """Views a contiguous array as a vector of integers: kernels that copy memory ignore its dtype."""
    return x.reshape(-1).view(kind)


def embedding(table, rows, padding_idx, scale_grad_by_freq):
    """Looks up rows of a table."""
    if not table.shape[0] and rows.size:
        return NotImplemented
    return _take(table, 0, rows, (*rows.shape, table.shape[1]), 0)


def index_select(x, dim, index):
    """Selects the slices `index` along `dim`."""
    if not x.ndim or not x.shape[dim]:
        return NotImplemented
    return _take(x, dim, index, (*x.shape[:dim], index.size, *x.shape[dim + 1 :]), 0)


def index(x, indices, pattern):
    """Computes `x[..., indices, ...]` for one array of integers."""
    found = _single(x, indices, pattern)
    if found is None or not x.shape[found]:
        return NotImplemented
    which = indices[0]
    shape = (*x.shape[:found], *which.shape, *x.shape[found + 1 :])
    return _take(x, found, which, shape, -x.shape[found])


def _single(x, indices, pattern):
    """Returns the dimension that is indexed, if it is only one, by integers."""
    if len(indices) != 1 or indices[0].dtype.kind == "b" or not x.ndim:
        return None
    return pattern.index(0)


def gather(x, dim, index):
    """Computes `out[i, j] = x[index[i, j], j]` for `dim` 0, and so on; `index` must cover all other dimensions."""
    if not _covers(x, dim, index) or not index.size or x.itemsize > 8:
        return NotImplemented
    x, which = cupy.ascontiguousarray(x), _indices(index)
    out = cupy.empty(index.shape, x.dtype)
    _, n, inner = _sizes(x.shape, dim)
    bits = np.dtype(f"int{8 * x.itemsize}")
    count = index.shape[dim]
    launch = _launch("take_each", bits, which)
    numbers = (*_integers(which.size, count, n, inner, dim), bounds.note(RuntimeError))
    launch((-(-which.size // 256),), (256,), (_bits(x, bits), which, _bits(out, bits), *numbers))
    return out


def scatter(x, dim, index, src):
    """Returns a copy of `x` with `src` written where `gather` would read.

    If an index repeats, an arbitrary one of its values remains; the last, if algorithms must be deterministic.
    """
    if not _covers(x, dim, index) or not index.size or x.itemsize > 8:
        return NotImplemented
    single = src.size == 1 and src.shape != index.shape
    if src.shape != index.shape and not single:
        src = src[tuple(slice(0, n) for n in index.shape)]
    out, src, which = cupy.array(x, order="C"), cupy.ascontiguousarray(src), _indices(index)
    _, n, inner = _sizes(x.shape, dim)
    bits = np.dtype(f"int{8 * x.itemsize}")
    if SETTINGS.deterministic:
        bounds.check(which, 0, n, dim, RuntimeError)
        places = _places(x.shape, dim, which).reshape(-1)
        given = (_bits(src, bits), places, cupy.argsort(places), _bits(out, bits))
        launch = _launch("put_last", bits, places)
        launch((-(-which.size // 256),), (256,), (*given, *_integers(which.size, out.size), np.int32(single)))
        return out
    numbers = (*_integers(which.size, index.shape[dim], n, inner), np.int32(single), np.int64(dim))
    launch = _launch("put_each", bits, which)
    given = (_bits(src, bits), which, _bits(out, bits), *numbers, bounds.note(RuntimeError))
    launch((-(-which.size // 256),), (256,), given)
    return out


def _covers(x, dim, index) -> bool:
    """Returns whether an index has x's size in all other dimensions."""
    return x.ndim == index.ndim > 0 and all(
        n == m for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if d != dim
    )


# --- adding ----------------------------------------------------------------------------------------------------------


def _sum_type(dtype: np.dtype):
    return SUMS.get(program.NAME[dtype])


def _started(x, sums: str):
    """Returns a contiguous copy of x in the type of its sums."""
    return cupy.array(x, dtype=KEPT[sums], order="C")


def _uses(index, n: int):
    uses = cupy.zeros(n, np.int32)
    numbers = _integers(index.size, n)
    launch = _launch("count_uses", np.dtype("int32"), index)
    launch((-(-index.size // 256),), (256,), (index, uses, *numbers, bounds.note()))
    return uses


def _add_rows(
    out, dim, index, g, least: int = 0, left_out: int = -1, scaled: bool = False, factor=1, error=IndexError
) -> None:
    """Adds `out[..., index[k], ...] += factor * g[..., k, ...]` in place.

    `out` is contiguous, in the type of its sums.
    """
    index, g = _indices(index).reshape(-1), cupy.ascontiguousarray(g)
    outer, n, inner = _sizes(out.shape, dim)
    if not g.size:
        return
    sums = _sum_type(g.dtype)
    uses = _uses(index, n) if scaled else cupy.empty(0, np.int32)
    across, down = _rows_of_block(inner)
    rows = outer * index.size
    last = (KEPT[sums](factor), np.int64(dim), bounds.note(error))
    if SETTINGS.deterministic and outer == 1:
        order = cupy.argsort(index)
        numbers = _integers(index.size, n, inner, least, left_out)
        launch = _launch("add_runs", g.dtype, index, 1, sums, int(scaled))
        launch((-(-rows // down),), (across, down), (g, index, order, out, uses, *numbers, *last))
        return
    if SETTINGS.deterministic:  # merge the outer dimensions into the index
        whole = cupy.arange(outer)[:, None] * n + cupy.where(index < 0, index + n, index)
        bounds.check(index, least, n, dim, error)
        _add_rows(out.reshape(outer * n, inner), 0, whole, g.reshape(-1, inner), 0, -1, False, factor, error)
        return
    numbers = _integers(rows, index.size, n, inner, least, left_out)
    launch = _launch("add_rows", g.dtype, index, 1, sums, int(scaled))
    launch((-(-rows // down),), (across, down), (g, index, out, uses, *numbers, *last))


def add_in_order(array, places, values) -> None:
    """Adds `array.flat[places] += values` in place, repeats included, in a deterministic order."""
    flat = cupy.ascontiguousarray(array)
    _add_rows(flat.reshape(-1, 1), 0, places, cupy.broadcast_to(values, places.shape).reshape(-1, 1))
    if flat is not array:
        array[...] = flat


def embedding_grad(g, rows, count, padding_idx, scale_grad_by_freq):
    """Computes the gradient of a table of `count` rows: the sum or mean of the gradients of each row's uses."""
    sums = _sum_type(g.dtype)
    if sums is None:
        return NotImplemented
    table = cupy.zeros((count, g.shape[-1]), KEPT[sums])
    _add_rows(table, 0, rows, g, 0, padding_idx, scale_grad_by_freq)
    return table.astype(g.dtype, copy=False)


def index_add(x, dim, index, src, alpha=1):
    """Returns a copy of `x` with `alpha * src` added: slice k of `src` along `dim` to slice `index[k]` of `x`."""
    sums = _sum_type(x.dtype)
    if sums is None or not x.ndim or isinstance(alpha, complex):
        return NotImplemented
    out = _started(x, sums)
    src = src.reshape(*x.shape[:dim], index.size, *x.shape[dim + 1 :])
    _add_rows(out, dim, index, src, factor=alpha, error=RuntimeError)
    return out.astype(x.dtype, copy=False)


def scatter_add(x, dim, index, src):
    """Returns a copy of `x` with `src` added where `gather` would read; `index` must cover all other dimensions."""
    sums = _sum_type(x.dtype)
    if sums is None or not _covers(x, dim, index) or not index.size:
        return NotImplemented
    if src.shape != index.shape:
        src = cupy.broadcast_to(src, index.shape) if not src.ndim else src[tuple(slice(0, n) for n in index.shape)]
    out, which, src = _started(x, sums), _indices(index), cupy.ascontiguousarray(src)
    _, n, inner = _sizes(x.shape, dim)
    if SETTINGS.deterministic:
        bounds.check(which, 0, n, dim, RuntimeError)
        _add_rows(out.reshape(-1, 1), 0, _places(x.shape, dim, which), src.reshape(-1, 1), error=RuntimeError)
        return out.astype(x.dtype, copy=False)
    numbers = (*_integers(which.size, index.shape[dim], n, inner, dim), bounds.note(RuntimeError))
    launch = _launch("add_each", src.dtype, which, 1, sums)
    launch((-(-which.size // 256),), (256,), (src, which, out, *numbers))
    return out.astype(x.dtype, copy=False)


def _places(shape, dim: int, index):
    """Returns flat positions in a contiguous array of `shape` for an index that covers all of the other dimensions."""
    outer, n, inner = _sizes(shape, dim)
    index = index.reshape(outer, -1, inner)
    return (cupy.arange(outer)[:, None, None] * n + index) * inner + cupy.arange(inner)


def index_grad(g, indices, pattern, shape):
    """Returns zeros of `shape` with the gradients `g` added where `index` read, for one array of integers."""
    sums = _sum_type(g.dtype)
    if sums is None or len(indices) != 1 or indices[0].dtype.kind == "b" or not shape:
        return NotImplemented
    dim = pattern.index(0)
    out = cupy.zeros(shape, KEPT[sums])
    _add_rows(out, dim, indices[0], g.reshape(*shape[:dim], indices[0].size, *shape[dim + 1 :]), -shape[dim])
    return out.astype(g.dtype, copy=False)


def index_put(x, indices, values, pattern, accumulate):
    """Returns a copy of `x` with `values` added where `index` would read, for one array of integers."""
    dim = _single(x, indices, pattern)
    sums = _sum_type(x.dtype)
    if not accumulate or dim is None or sums is None:
        return NotImplemented
    which = indices[0]
    wanted = (*x.shape[:dim], *which.shape, *x.shape[dim + 1 :])
    if len(values.shape) > len(wanted) or any(
        n not in (1, m) for n, m in zip(values.shape[::-1], wanted[::-1], strict=False)
    ):
        return NotImplemented  # the general kernel raises the error
    out = _started(x, sums)
    g = cupy.broadcast_to(values, wanted).reshape(*x.shape[:dim], which.size, *x.shape[dim + 1 :])
    _add_rows(out, dim, which, g, -x.shape[dim])
    return out.astype(x.dtype, copy=False)
