"""What hooks on saved tensors make of what a node saves. The hooks themselves are in `saving.py`."""

from __future__ import annotations

from tensorgrad.autograd.graph import Node, Packed
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share


def pack_saved(node: Node) -> None:
    """Sends what `node` saved through the innermost pair of `saved_tensors_hooks`."""
    node.saved = tuple(packed(saved) for saved in node.saved)


def packed(saved):
    """What the innermost hook makes of one saved value; of a list, of each of its members."""
    if saved.__class__ is list:
        return [packed(s) for s in saved]
    if saved.__class__ in STORAGES:  # of the kernel's cache
        return pack_one(share(saved, STORAGES[saved.__class__].of(saved)))
    if saved.__class__ is not tuple:
        return saved
    array, storage, _ = saved
    if storage is LOCAL.overwritten:  # the hook may keep what it is given
        array = storage.copy(array)
        storage = storage.of(array)
    return pack_one(share(array, storage))


def pack_one(tensor: Tensor) -> Packed:
    """What the innermost hook makes of a tensor. Raises: RuntimeError if the hook writes to it."""
    pack, unpack = LOCAL.saved_hooks[-1]
    before = tensor._version
    with without_hooks():
        made = Packed(pack(tensor), unpack)
    if tensor._version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. It may be needed as it is: write to a copy."
        )
    return made


class without_hooks:
    """Suspends hooks on saved tensors while such a hook itself runs."""

    def __enter__(self):
        self.hooks, LOCAL.saved_hooks = LOCAL.saved_hooks, ()
        self.grad, GRAD.enabled = GRAD.enabled, False

    def __exit__(self, *exception):
        LOCAL.saved_hooks, GRAD.enabled = self.hooks, self.grad
