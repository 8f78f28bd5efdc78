"""Runs functions over a batch. Whoever opens a level of `vmap` imports this file, and with it the rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad.storage.stubs import STORAGES, Storage
from tensorgrad.tensor import Tensor, wrap
from tensorgrad.transforms import batch_gradients  # noqa: F401  registers itself, and the rules
from tensorgrad.transforms.batch import Batch, whole

__all__ = ["Batch", "basis", "over_batch"]


def over_batch(function: Any, values: list, randomness: str = "error") -> list:
    """Runs `function(samples)` on a list of tensors with a batch as their first dimension; each may also be None.

    It returns a list of tensors or None; so does this, with the batch as their first dimension.

    >>> from tensorgrad.transforms.batch_map import over_batch
    >>> over_batch(lambda given: [given[0].sum(), None], [torch.ones(2, 3)])
    [tensor([3., 3.]), None]
    """
    size = next(len(v._array) for v in values if v is not None)
    with Batch(size, randomness) as level:
        found = function([None if v is None else level.batched(v) for v in values])
        with level.off():
            return [None if r is None else level.taken(r) for r in found]


def basis(tensor: Tensor) -> Tensor:
    """The standard basis of the space of `tensor`, stacked.

    >>> from tensorgrad.transforms.batch_map import basis
    >>> basis(torch.tensor([3.0, 4.0]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    array = whole(tensor)._array
    storage, shape = STORAGES[array.__class__], tensor._array.shape
    count = math.prod(shape)
    dtype = array.dtype
    ones = np.eye(count, dtype=dtype) if dtype.kind in "fc" else Storage.cast(np.eye(count, dtype=np.float32), dtype)
    ones = ones.reshape(count, *shape)
    return wrap(ones if array.__class__ is np.ndarray else storage.from_host(ones, storage.device_of(array)))
