"""Sparse tensors in files: a layout, the parts as dense tensors, and the size.

A file may be hostile: everything is checked before the tensor exists, since kernels rely on indices being inside it.
Indices are copied, so that no other tensor of the file shares their memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad import layouts
from tensorgrad.ops.sparse.construct import check_compressed, check_coo
from tensorgrad.ops.sparse_parts import layout_of, raw_indices, raw_values
from tensorgrad.serialization.describe import described
from tensorgrad.storage.sparse import COMPRESSED, COOArray, SparseArray
from tensorgrad.tensor import Tensor, wrap

Copy = Callable[[np.ndarray], np.ndarray]


def parts_of(tensor: Tensor) -> tuple:
    """What a file says of a sparse tensor: its indices, values and size, and of COO whether it is coalesced."""
    array = tensor._array
    if isinstance(array, COOArray):
        return raw_indices(tensor), raw_values(tensor), tensor.shape, array.coalesced
    return *(wrap(part) for part in array.parts()), tensor.shape


def rebuild(layout: Any, data: Any, copy: Copy = np.array) -> Tensor:
    """Returns a sparse tensor from its parts; `copy` makes the copies of indices.

    Raises: ValueError or RuntimeError unless the parts are what they should be, and fit each other.
    """
    kind = COMPRESSED.get(layout) if isinstance(layout, layouts.layout) else None
    if kind is None and layout is not layouts.sparse_coo:
        raise ValueError(f"a sparse tensor cannot have the layout {described(layout)}")
    lengths = (4,) if kind is not None else (3, 4)
    if not isinstance(data, tuple) or len(data) not in lengths:
        raise ValueError(f"a sparse tensor of layout {layout} cannot be made of {described(data)}")
    *parts, size = data[: 4 if kind is not None else 3]
    for part in parts:
        if not isinstance(part, Tensor) or part.device.type != "cpu" or isinstance(part._array, SparseArray):
            raise ValueError(f"a sparse tensor consists of dense tensors in main memory, not {described(part)}")
    if not isinstance(size, tuple | list) or len(size) > 64:
        raise ValueError(f"a sparse tensor's size must be at most 64 integers, but the file contains {described(size)}")
    if not all(type(n) is int and 0 <= n < 2**63 for n in size):
        raise ValueError(f"a sparse tensor's size must be non-negative integers, not {described(size)}")
    shape = tuple(size)
    *indices, values = (part.detach()._array for part in parts)
    for array in indices:
        if array.dtype.name != "int64" and (kind is None or array.dtype.name != "int32"):
            raise ValueError(f"indices of a sparse tensor must be int64, or int32 if compressed, not {array.dtype}")
        if array.ndim < 1 + (kind is None):
            raise ValueError(f"indices of a sparse tensor with {array.ndim} dimensions")
    if values.ndim == 0:
        raise ValueError("values of a sparse tensor without dimensions")
    indices = [copy(array) for array in indices]
    values = np.ascontiguousarray(values) if 0 not in values.strides else copy(values)
    if kind is not None:
        lines, places = indices
        if lines.dtype != places.dtype:
            raise ValueError(f"indices of a sparse tensor of two dtypes, {lines.dtype} and {places.dtype}")
        check_compressed(kind, lines, places, values, shape, in_order=False)
        return wrap(kind(lines, places, values, shape))
    (where,) = indices
    if where.ndim != 2 or where.shape[1] != values.shape[0]:
        raise ValueError(f"indices of shape {list(where.shape)} for values of shape {list(values.shape)}")
    check_coo(where, values, shape)
    ordered = where.shape[1] < 2
    if len(data) == 4 and data[3] is True and not ordered:
        from tensorgrad.kernels.sparse.coordinates import keys

        found = keys(where, shape)
        ordered = bool((found[1:] > found[:-1]).all())
        if not ordered:
            raise ValueError("a sparse tensor that is said to be coalesced has its indices out of order, or twice")
    return wrap(COOArray(where, values, shape, coalesced=ordered))


def layout_named(tensor: Tensor) -> str:
    """The name of a tensor's layout in files."""
    return f"torch.{layout_of(tensor).name}"
