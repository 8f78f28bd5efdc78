"""Steps with sparse gradients: only the elements (rows, mostly) that a gradient stores are read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.kernels.sparse.convert import coo
from tensorgrad.kernels.sparse.coordinates import add_rows, coalesced
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.tensor import Tensor


def is_sparse(grad: Tensor) -> bool:
    """Returns whether a gradient has a sparse layout."""
    return isinstance(grad._array, SparseArray)


def refuse(grad: Tensor, name: str) -> None:
    """Raises RuntimeError, with PyTorch's message, if the gradient is sparse."""
    if is_sparse(grad):
        raise RuntimeError(f"{name} does not support sparse gradients")


def stored(grad: Tensor) -> tuple[tuple, np.ndarray]:
    """Returns where a gradient stores elements, as an index of a dense array in which no element is twice, and them."""
    array = coalesced(coo(grad._array))
    return tuple(array.indices), array.values


def add(p: Tensor, grad: Tensor, factor: float) -> None:
    """Adds a multiple of a sparse gradient to a parameter."""
    array = coo(grad._array)
    if array.sparse_dim:
        add_rows(p._array, array, factor)
    else:
        p._array += array.values.sum(0) * factor
    p._storage.bump()


def move(p: Tensor, place: tuple, change: Any) -> None:
    """Adds to the elements of a parameter at some places."""
    p._array[place] += change.astype(p._array.dtype, copy=False)
    p._storage.bump()
