"""Applies hooks on saved tensors to what a node saves. The hooks themselves are in `saved_tensor_hooks.py`."""

from __future__ import annotations

from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import Packed
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share


def pack_saved(node: Node) -> None:
    """Passes what `node` saved through the innermost pair of `saved_tensors_hooks`."""
    node.saved = tuple(packed(saved) for saved in node.saved)


def packed(saved):
    """Applies the innermost hook to one saved value, or to each element of a list."""
    if saved.__class__ is list:
        return [packed(s) for s in saved]
    if saved.__class__ in STORAGES:  # an array from the kernel's cache
        return pack_one(share(saved, STORAGES[saved.__class__].of(saved)))
    if saved.__class__ is not tuple:
        return saved
    array, storage, _ = saved
    if storage is LOCAL.overwritten:  # the op overwrites it, but the hook may keep its argument
        array = storage.copy(array)
        storage = storage.of(array)
    return pack_one(share(array, storage))


def pack_one(tensor: Tensor) -> Packed:
    """Applies the innermost hook to a tensor. Raises: RuntimeError if the hook modifies it."""
    pack, unpack = LOCAL.saved_hooks[-1]
    before = tensor._version
    with without_hooks():
        made = Packed(pack(tensor), unpack)
    if tensor._version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. It may still be needed: modify a copy instead."
        )
    return made


class without_hooks:
    """Suspends hooks on saved tensors while such a hook is running."""

    def __enter__(self):
        self.hooks, LOCAL.saved_hooks = LOCAL.saved_hooks, ()
        self.grad, GRAD.enabled = GRAD.enabled, False

    def __exit__(self, *exception):
        LOCAL.saved_hooks, GRAD.enabled = self.hooks, self.grad
