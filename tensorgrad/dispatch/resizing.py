"""Memory that grows: all tensors of a storage follow it to where it is then.

A tensor's array points into the memory, and a storage does not know its tensors, since every op would have to tell it.
The garbage collector does: it is asked, which takes some milliseconds, where somebody else uses the memory, too.
"""

from __future__ import annotations

import gc
import sys

import numpy as np

from tensorgrad.storage.cpu import CPUStorage, Window
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor, reshape_in_place, share

BYTES = np.dtype("uint8")


def resize(tensor: Tensor, size: tuple, strides: tuple) -> int:
    """Gives a tensor another shape and strides (in bytes). Returns where new memory begins (in bytes); -1 for none.

    The tensor's elements begin where they did. The memory grows if they reach beyond it: what it holds is kept, and
    what is new is uninitialized.
    """
    storage, dtype = tensor._storage, tensor._array.dtype
    offset, held = storage.offset_of(tensor._array), storage.nbytes()
    reach = 0 if 0 in size else sum((n - 1) * s for n, s in zip(size, strides, strict=True)) + dtype.itemsize
    grows = reach > 0 and offset + reach > held
    if grows:
        del storage  # which would count as a user
        grow(tensor, offset + reach)
    if size != tensor._array.shape:
        reshape_in_place(tensor)
    tensor._array = tensor._storage.strided(size, strides, offset, dtype)
    return held if grows else -1


def grow(tensor: Tensor, nbytes: int) -> None:
    """Moves a tensor's memory, with all tensors over it, to as many bytes."""
    alone = _users(tensor) == _ALONE
    storage = tensor._storage
    memory, held = storage.empty((nbytes,), BYTES, storage.device), storage.nbytes()
    move(storage, memory, held, [(tensor, storage)] if alone else None)


def move(storage: Storage, memory, held: int, users: list | None = None) -> None:
    """Copies `held` bytes of a storage to other memory, which it and the tensors over it use from now on.

    The tensors are those of all storages of the memory: `.data` has one with a version of its own. `users`: the
    tensors with their storages, if they are known.
    """
    old = storage.array
    if users is None:
        storages = [s for s in gc.get_referrers(old) if isinstance(s, Storage) and s.array is old]
        tensors = [t for t in gc.get_referrers(*storages) if isinstance(t, Tensor)]
        users = [(t, s) for t in tensors for s in storages if t._memory is s]
    moved = [(t, s, s.offset_of(t._array)) for t, s in users]
    if held:
        target = share(memory, None)._storage.strided((held,), (1,), 0, BYTES)
        storage.write(target, storage.strided((held,), (1,), 0, BYTES))
    for s in (storage, *(s for _, s in users)):
        s.array = memory
    for t, s, offset in moved:
        array = t._array
        t._array = s.strided(array.shape, array.strides, offset, array.dtype)


def _users(tensor: Tensor) -> tuple[int, int]:
    """The references to a tensor's storage and to its memory, without that of its array."""
    storage = tensor._storage
    return sys.getrefcount(storage), sys.getrefcount(storage.array) - _refers(tensor._array, storage.array)


def _refers(array, memory) -> bool:
    """Whether an array is the memory, or a view of it that keeps it alive."""
    while array is not None and array is not memory:
        array = getattr(array, "owner" if isinstance(array, Window) else "base", None)
    return array is memory


def _of_one_tensor() -> Tensor:
    array = np.empty(1)
    return share(array, CPUStorage.of(array))


_ALONE = _users(_of_one_tensor())  # differs between versions of Python, which count what a call borrows or not
