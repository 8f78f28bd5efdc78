"""Recording writes in place."""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd.modes import no_grad
from tensorgrad.capture import steps
from tensorgrad.capture.gradients import Gradients
from tensorgrad.capture.masks import described, unwrapped
from tensorgrad.capture.traced import TracedArray
from tensorgrad.fx import Node
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch import BatchedArray


class Writes(Gradients):
    """Recording writes in place."""

    def write(self, target: Any, values: Any, adds: bool = False) -> None:
        """Writes values into a traced array, or a traced array into another one."""
        real, given = unwrapped(target), unwrapped(values)
        storage = STORAGES[real.__class__]
        (storage.add_to if adds else storage.write)(real, given)
        node = self._node_of_array(target)
        value = self._node_of_array(values) if values.__class__ in STORAGES else self.argument(values)
        made = self.call(steps.add_to if adds else steps.write, (node, value))
        self.note("write", made, f"writes to {node.name}")

    def _node_of_array(self, array: Any) -> Node:
        if array.__class__ is TracedArray and array.node is not None:
            return array.node
        return self.node_of(share(unwrapped(array), None))

    def stored(self, out: Tensor, result: Tensor) -> bool:
        """Writes a result into `out=`."""
        with no_grad():
            out.copy_(result)
        return True

    def written(self, tensor: Tensor, result: Tensor) -> None:
        """Called after an op's result has been written over a tensor."""
        if tensor._array.__class__ in (TracedArray, BatchedArray):
            return  # its storage has seen it, or that of its values
        node = self._find(tensor._array)
        if node is None:
            node = self.node_of(tensor)
        made = self.call(steps.write, (node, self._node_of_array(result._array)))
        self.note("write", made, f"writes to {node.name}")
        self.expect(tensor._storage)

    def copied(self, array: Any, copy: Any) -> None:
        """Called after an array that a node saved was copied, as it is about to be overwritten."""
        node = self._find(array)
        if node is not None:
            made = self.call(OPS["clone_copy"].compiled.call, (node, None))
            made.meta["val"] = described(copy)
            self._know(copy, made)
