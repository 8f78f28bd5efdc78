"""Arithmetic, and functions of one element that keep zeros.

A function f with f(0) = 0 is applied to the stored values (ops/sparse/composed.py). Sums unite two patterns; a product
has the pattern of the sparse factor, or what two patterns share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kernel_errors import Composed
from tensorgrad.kernels.sparse.convert import coo, dense, like
from tensorgrad.kernels.sparse.coordinates import at, coalesced, found_in, values_at
from tensorgrad.kernels.sparse.parts import same_pattern, values_at_pattern
from tensorgrad.rows.op import Op
from tensorgrad.rows.signature import arguments_of
from tensorgrad.storage.sparse import CompressedArray, COOArray, SparseArray

LINEAR = frozenset(("neg", "conj", "conj_physical"))  # of these, PyTorch does not take the sums first


def on_values(op: Op, array: Any, *params: Any) -> Any:
    """An op on elements, with numbers as its other operands, on the stored values.

    Raises: Composed if its derivative depends on its argument or result; NotImplementedError for other operands, and
    for ops that do not keep zeros, such as `exp`.
    """
    if not isinstance(array, SparseArray) or any(isinstance(p, SparseArray) or np.ndim(p) for p in params):
        raise NotImplementedError(f"{op.name}: no kernel for two tensors of which one is sparse")
    with np.errstate(all="ignore"):
        if np.any(op.compiled.kernels[np.ndarray](np.zeros(1, array.dtype), *params) != 0):
            raise NotImplementedError(
                f"{op.name}: not supported for {array.title} tensors, since it does not keep zeros; convert with "
                "to_dense() first"
            )
    if any(tuple(arguments_of(formula)) != ("g",) for formula in op.formulas.values()):
        raise Composed
    if array.__class__ is COOArray and op.name not in LINEAR:
        array = coalesced(array)
    values = array.values
    table: Any = op.compiled.kernels if values.size < op.compiled.kernels.large_from else op.compiled.kernels.large
    made = np.asarray(table[np.ndarray](values, *params))
    if op.name in LINEAR and array.dtype.kind == "b":
        made = made.astype(array.dtype)  # NumPy's conjugates of booleans are integers
    return array.with_values(made)


def _is_number(value: Any) -> bool:
    return not isinstance(value, SparseArray) and np.ndim(value) == 0


def add(a: Any, b: Any) -> Any:
    """The sum of two sparse arrays, or of a dense one and a sparse one."""
    if isinstance(a, SparseArray) and isinstance(b, SparseArray):
        return _sum(a, b)
    if isinstance(a, CompressedArray) and np.ndim(b):
        return _added_to(np.asarray(b), a)
    if isinstance(a, SparseArray):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return _added_to(np.asarray(a), b)


def sub(a: Any, b: Any) -> Any:
    """The difference of two sparse arrays, or of a dense one and a sparse one."""
    if isinstance(b, SparseArray):
        return add(a, b.with_values(-b.values))
    raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")


def subtract_from(a: Any, b: Any) -> Any:
    """The kernel of `rsub`: b - a."""
    return sub(b, a)


def check_same_shape(a: Any, b: Any, what: str) -> None:
    """Raises: RuntimeError unless two arrays have the same shape."""
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"{what}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}"
        )


def _sum(a: Any, b: Any) -> Any:
    check_same_shape(a, b, "add")
    if same_pattern(a, b):
        return a.with_values(np.asarray(a.values + b.values))
    x, y = coo(a), coo(b)
    if x.sparse_dim != y.sparse_dim and not (len(x.values) and len(y.values)):
        return (y if len(y.values) else x).astype(np.result_type(x.dtype, y.dtype))
    if x.sparse_dim != y.sparse_dim:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same number of sparse dimensions, but "
            f"{x.sparse_dim} != {y.sparse_dim}"
        )
    made = COOArray(np.concatenate([x.indices, y.indices], 1), np.concatenate([x.values, y.values]), x.shape)
    made = coalesced(made) if x.coalesced and y.coalesced else made
    return like(made, a) if isinstance(a, CompressedArray) else made


def _added_to(whole: np.ndarray, array: Any) -> np.ndarray:
    if whole.shape != tuple(array.shape):
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(whole.shape)} while other "
            f"has size {list(array.shape)} (dense-sparse addition does not support broadcasting)"
        )
    array, made = coalesced(coo(array)), np.array(whole)
    if not array.sparse_dim:
        return made + array.values.sum(0, dtype=made.dtype)
    place = tuple(array.indices)
    made[place] = made[place] | array.values if made.dtype.kind == "b" else made[place] + array.values
    return made


def mul(a: Any, b: Any) -> Any:
    """The product with a number, a dense array, or another sparse array."""
    if isinstance(a, SparseArray) and isinstance(b, SparseArray):
        if a.ndim and b.ndim:
            return _common(a, b)
        # One is a number; of two numbers, the one that stores more keeps its pattern.
        a, b = (a, dense(b)) if a.ndim or (not b.ndim and len(a.values) >= len(b.values)) else (b, dense(a))
    if not isinstance(a, SparseArray):
        a, b = b, a
    if _is_number(b):
        return a.with_values(np.multiply(a.values, b, dtype=a.dtype))
    x = broadcast(coo(a), np.broadcast_shapes(a.shape, b.shape))
    made = x.with_values(x.values * at(np.broadcast_to(b, x.shape), x.indices))
    return like(made, a) if isinstance(a, CompressedArray) else made


def broadcast(array: COOArray, shape: tuple[int, ...]) -> COOArray:
    """An array with its dimensions of size 1 repeated, and new sparse dimensions before the others."""
    if array.shape == shape:
        return array
    new = len(shape) - array.ndim
    indices = np.concatenate([np.zeros((new, array.indices.shape[1]), np.int64), array.indices])
    old, values = (1,) * new + array.shape, array.values
    sparse = len(indices)
    for d in range(sparse):
        if old[d] != shape[d]:
            count = indices.shape[1]
            indices = np.repeat(indices, shape[d], 1)
            indices[d] = np.tile(np.arange(shape[d]), count)
            values = np.repeat(values, shape[d], 0)
    values = np.broadcast_to(values, (len(values), *shape[sparse:]))
    return COOArray(indices, np.ascontiguousarray(values), shape)


def _common(a: Any, b: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape)
    x, y = broadcast(coo(a), shape), broadcast(coo(b), shape)
    if x.sparse_dim != y.sparse_dim:
        raise RuntimeError(f"mul operands have incompatible sparse dimensions: {x.sparse_dim} and {y.sparse_dim}")
    if not (x.coalesced and y.coalesced):  # the pattern of the one that is not
        x, y = (y, x) if x.coalesced else (x, coalesced(y))
        made = COOArray(x.indices, x.values * values_at(y, x.indices), x.shape)
        return like(made, a) if isinstance(a, CompressedArray) else made
    positions, there = found_in(y, x.indices)
    made = COOArray(x.indices[:, there], x.values[there] * y.values[positions[there]], x.shape, coalesced=True)
    return like(made, a) if isinstance(a, CompressedArray) else made


def _by_number(name: str, divide: Any):
    def kernel(a: Any, b: Any, *params: Any) -> Any:
        if isinstance(b, SparseArray) or not _is_number(b):
            raise RuntimeError(
                f"Sparse {'floor ' * (name == 'floor_divide')}division requires a scalar or zero-dim dense tensor "
                f"divisor (got shape {list(getattr(b, 'shape', ()))} for divisor)"
            )
        array = coalesced(a) if a.__class__ is COOArray and name != "div" else a
        return array.with_values(np.asarray(divide(array.values, b)))

    return kernel


div = _by_number("div", np.true_divide)
floor_divide = _by_number("floor_divide", np.floor_divide)


def power(a: Any, b: Any) -> Any:
    """A sparse array to the power of a number that keeps zeros. Raises: RuntimeError for exponent 0, and arrays."""
    if isinstance(b, SparseArray) or not _is_number(b):
        raise RuntimeError("pow: of a sparse tensor, expected a number as exponent")
    if b == 0:
        raise RuntimeError("pow: exponent 0 is not supported for sparse tensors, since 0 ** 0 = 1")
    array = coalesced(a) if a.__class__ is COOArray else a
    return array.with_values(np.power(array.values, b).astype(array.dtype, copy=False))


def copied(target: Any, source: Any) -> Any:
    """The kernel of `copy_`: `source` with the dtype of `target`. Raises: RuntimeError unless both are sparse."""
    if source.__class__ is not target.__class__:
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{getattr(target, 'title', 'Strided')} and src type = {getattr(source, 'title', 'Strided')}"
        )
    check_same_shape(target, source, "copy_")
    return source.astype(target.dtype)


def threshold_grad(g: Any, out: Any, limit: float) -> Any:
    """The gradient of `relu` and `threshold`: `g` where `out` is above a limit, with the pattern of `out`."""
    values = values_at_pattern(g, out)
    return out.with_values(np.where(out.values <= limit, values.dtype.type(0), values))
