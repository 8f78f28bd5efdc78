"""Changes of a sparse tensor in place: its size, and its elements all at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.dispatch.kinds import composite
from tensorgrad.errors import typename
from tensorgrad.ops.sparse import arguments
from tensorgrad.ops.sparse_parts import title
from tensorgrad.storage.sparse import CompressedArray, COOArray
from tensorgrad.tensor import Tensor


def _coo(self: Tensor, name: str) -> COOArray:
    if not isinstance(self._array, COOArray):
        raise NotImplementedError(f"{name} expected sparse coordinate tensor layout but got {title(self._array)}")
    return self._array


def _resized(self: Tensor, name: str, size: Any, sparse_dim: int, dense_dim: int, keep: bool) -> Tensor:
    size = arguments.sizes(name, "size", size)
    sparse_dim = arguments.integer(name, "sparse_dim", sparse_dim)
    dense_dim = arguments.integer(name, "dense_dim", dense_dim)
    array = _coo(self, name)
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {dense_dim}"
        )
    stored = keep and array.indices.shape[1] > 0
    if stored and (sparse_dim != array.sparse_dim or dense_dim != array.ndim - array.sparse_dim):
        which = "sparse" if sparse_dim != array.sparse_dim else "dense"
        raise RuntimeError(f"{name}: changing the number of {which} dimensions of a tensor with stored elements")
    if stored and any(new < old for new, old in zip(size, array.shape)):
        sparse = any(new < old for new, old in zip(size[:sparse_dim], array.shape))
        raise RuntimeError(
            f"{name}: shrinking the size of {'sparse' if sparse else 'dense'} dimensions (from {list(array.shape)} to "
            f"{list(size)}) on a non-empty sparse tensor is not supported."
        )
    self._storage.bump()
    made = COOArray.without_elements(size, array.dtype, dense_dim)
    if stored:
        values = np.zeros((len(array.values), *size[sparse_dim:]), array.dtype)
        values.reshape(-1)[: array.values.size] = array.values.reshape(-1)  # as `resize_` of the values does
        made = COOArray(array.indices, values, size, array.coalesced)
    array.shape = made.shape
    array.take(made)
    return self


@composite("method")
def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Changes the size of a COO tensor in place; stored elements stay, so none of its sizes may shrink.

    Raises:
        RuntimeError: For another layout, and sizes that do not fit the stored elements.

    >>> torch.eye(2).to_sparse().sparse_resize_((3, 4), 2, 0).shape
    torch.Size([3, 4])
    """
    return _resized(self, "sparse_resize_", size, sparse_dim, dense_dim, True)


@composite("method")
def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Makes a COO tensor one of zeros, of another size, in place.

    >>> torch.eye(2).to_sparse().sparse_resize_and_clear_((3,), 1, 0)._nnz()
    0
    """
    return _resized(self, "sparse_resize_and_clear_", size, sparse_dim, dense_dim, False)


@composite("method")
def resize_as_sparse_(self: Tensor, other: Tensor) -> Tensor:
    """Gives a tensor the size of another one of the same layout, in place; in a compressed layout, also its indices.

    Raises:
        RuntimeError: For dense tensors, and another layout.

    >>> torch.eye(2).to_sparse().resize_as_sparse_(torch.eye(3).to_sparse()).shape
    torch.Size([3, 3])
    """
    if not isinstance(other, Tensor):
        raise TypeError(f"resize_as_sparse_(): argument 'the_template' must be Tensor, not {typename(other)}")
    array, pattern = self._array, other._array
    if isinstance(pattern, CompressedArray) and array.__class__ is pattern.__class__:
        self._storage.bump()
        made = np.zeros(pattern.values.shape, array.dtype)
        count = min(made.size, array.values.size)
        made.reshape(-1)[:count] = array.values.reshape(-1)[:count]
        array.shape = pattern.shape
        array.take(pattern.of_parts(*(part.copy() for part in pattern.parts()[:-1]), made))
        return self
    like = _coo(other, "resize_as_sparse_")
    return _resized(self, "resize_as_sparse_", like.shape, like.sparse_dim, like.ndim - like.sparse_dim, True)
