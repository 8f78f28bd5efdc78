"""Recording gradients: backward kernels, what leaves get, and the steps of optimizers."""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd.graph import FREED
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import Packed, raise_freed
from tensorgrad.capture import steps
from tensorgrad.capture.masks import Unmasked, real_array, real_saved
from tensorgrad.capture.ops import Ops
from tensorgrad.capture.traced import TracedArray
from tensorgrad.dispatch.templates import has_array_backward
from tensorgrad.fx import Node
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share


class Gradients(Ops):
    """Recording gradients: backward kernels, what leaves get, and the steps of optimizers."""

    def gradients(self, node: Any, grads: list) -> Any:
        """Returns the gradients of a node's inputs: on arrays where the engine would, as one node; else by ops."""
        op = node.op
        if node.saved is FREED:
            raise_freed()
        if not GRAD.enabled and getattr(op, "compiled", None) is not None and has_array_backward(op):
            if any(isinstance(s, Packed) for s in node.saved):
                raise NotImplementedError(
                    f"record(): {node.name()} has values that saved_tensors_hooks packed (as checkpoints do); these "
                    "are not recorded yet"
                )
            found = self._on_arrays(node, op, list(grads))
            if found is not NotImplemented:
                return found
        return op.compiled.on_tensors(node, grads)

    def _on_arrays(self, node: Any, op: Any, grads: list) -> Any:
        given = next(g for g in grads if g is not None)
        if STORAGES[real_array(given).__class__].xp is None:
            return NotImplemented
        with self.off(), Unmasked(self, [g for g in grads if g is not None]):
            on_arrays = op.compiled.array_backwards[given._array.__class__]
            saved, node.saved = node.saved, real_saved(node.saved)
            try:
                found = NotImplemented if on_arrays is None else on_arrays(node, grads)
            finally:
                node.saved = saved
        if found is NotImplemented:
            return found
        outputs = self.attribute("_outputs", node.outputs) if op.differentiable_outputs > 1 else None
        call = self.call(
            steps.backward_of(op.name),
            (
                tuple(None if g is None else self.node_of(g) for g in grads),
                tuple(self._saved(s) for s in saved),
                self.argument(tuple(node.args)),
                tuple(e is not None for e in node.edges),
            ),
            {} if outputs is None else {"outputs": outputs},
        )
        for i, r in enumerate(found):
            if r is not None and r._array.__class__ is not TracedArray:
                self.mask(r, self.call(steps.getitem, (call, i)))
        return found

    def _saved(self, value: Any) -> Any:
        """What a node saved, as an argument."""
        if value.__class__ is tuple:
            return self.node_of(share(value[0], value[1]))
        if value.__class__ is list:
            return tuple(self._saved(v) for v in value)
        known = self._find(value)
        return self.argument(value) if known is None else known

    def assigned_grad(self, leaf: Tensor, grad: Tensor | None) -> None:
        """Called when the program sets the `.grad` of a leaf (tensor.py)."""
        node = self._leaf_node(leaf)
        self._assigned.add(id(leaf))
        made = self.call(steps.set_grad, (node, None if grad is None else self.node_of(grad)))
        self.note("grad", made, f"sets the gradient of {node.name}")

    def _leaf_node(self, leaf: Tensor) -> Node:
        if id(leaf) not in self._leaves:
            self.node_of(leaf)
        return self._leaves[id(leaf)][2] if id(leaf) in self._leaves else self.node_of(leaf)

    def watch(self, leaf: Tensor) -> None:
        """Makes the recorder look at the `.grad` of a leaf at the end, whether an op uses the leaf or not."""
        self._watched.append((leaf, leaf._grad))

    def settle_gradients(self) -> None:
        """Adds the nodes that give leaves the gradients which they have by now."""
        for leaf, first in self._watched:
            if leaf._grad is not first and id(leaf) not in self._leaves:
                self.node_of(leaf)
                self._leaves[id(leaf)] = leaf, first, self._leaves[id(leaf)][2]
        for key, (leaf, first, node) in list(self._leaves.items()):
            now = leaf._grad
            if now is first or leaf._array.__class__ is TracedArray:
                continue
            if now is None:
                if key not in self._assigned:
                    made = self.call(steps.set_grad, (node, None))
                    self.note("grad", made, f"sets the gradient of {node.name} to None")
            elif first is not None and key not in self._assigned:  # the engine adds to it
                values = self.node_of(now)
                made = self.call(steps.write, (self.node_of(first), values))
                real = first._storage
                real.bump()
                real.write(first._array, real_array(now))
                self.expect(real)
                leaf._grad = first
                self.note("grad", made, f"adds to the gradient of {node.name}")
                continue
            else:
                if first is None and key not in self._assigned:
                    with self.graph.inserting_after(node):
                        check = self.call(steps.check_no_grad, (node,))
                    self.note("read", check, f"the gradient of {node.name} was None")
                    self._assigned.add(key)
                made = self.call(steps.set_grad, (node, self.node_of(now)))
                self.note("grad", made, f"sets the gradient of {node.name}")
            self._leaves[key] = leaf, now, node

    def optimizer_step(self, optimizer: Any, step: Any, parameters: list[Tensor]) -> Any:
        """Runs a step of an optimizer, as one node: it reads `.grad`, and writes parameters and its state."""
        self.settle_gradients()
        moved = [p for p in parameters if p._grad is not None]
        nodes = [self.node_of(p) for p in moved]
        with self.off(), Unmasked(self, [p._grad for p in moved]):  # type: ignore[misc]
            result = step()
        node = self.call(steps.optimizer_step, (self.attribute("_optimizer", optimizer),))
        names = ", ".join(n.name for n in nodes)
        self.note("step", node, f"a step of {type(optimizer).__name__} writes to {names} and to its state")
        for p in moved:
            self.expect(p._storage)
        return result
