"""The recorder: runs a program eagerly, and notes in a graph what it does on arrays.

It is the outermost of the transforms that are on (transforms/transform.py), so it sees what everything else comes down
to: composites, vmap, tangents and backward passes arrive as ops. Each op runs as ever, on the real arrays; then its
result is masked: the tensor holds a traced array (capture/traced.py) until the recording ends.

What is not an op is noted too: writes in place, gradients that leaves get, random draws, reads of values. A write that
the recorder did not see raises an error when it finds the version of the memory changed.
"""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from tensorgrad.autograd.graph import FREED, Packed, raise_freed
from tensorgrad.autograd.modes import GRAD, no_grad
from tensorgrad.autograd.views import edge_of
from tensorgrad.capture import steps
from tensorgrad.capture.traced import TracedArray, TracedStorage
from tensorgrad.devices import device as Device
from tensorgrad.dispatch.slow_path import execute
from tensorgrad.dispatch.templates import has_array_backward
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.fx import Graph, Node, has_side_effect
from tensorgrad.layouts import layout, memory_format, strided
from tensorgrad.random.generator import WATCHERS
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.cpu import READERS
from tensorgrad.storage.meta import MetaArray
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.tensor import VIEW, Tensor, share, tensors_in
from tensorgrad.transforms.transform import Transform

_PLAIN = (int, float, bool, complex, str, type(None), Dtype, Device, layout, memory_format, type(...))


class ReadError(RuntimeError):
    """A program that is being recorded read the value of a tensor: its graph would hold for this value only."""


@dataclass(frozen=True)
class Effect:
    """What a step of a program does besides computing its result.

    Attributes:
        kind: "write", "grad", "random", "read", "step" or "return".
        node: the node that does it.
        detail: in words.
    """

    kind: str
    node: Node
    detail: str


class Recorder(Transform):
    """Records what this thread does within a `with` block.

    `on_read` says what a read of a value does: "raise" an error, or "note" it, and have the graph check that the
    value is the same when it runs.
    """

    name = "capture"
    records = True

    def __init__(self, on_read: str = "raise") -> None:
        if on_read not in ("raise", "note"):
            raise ValueError(f"record(): on_read has to be 'raise' or 'note', but got {on_read!r}")
        self.on_read = on_read
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}  # name -> what a get_attr node fetches
        self.names: dict[int, str] = {}  # id of a tensor -> its name in a module
        self.effects: list[Effect] = []
        self.active = False
        self.reading = False  # is a read, which was noted, being carried out?
        self._known: dict[int, tuple[Any, Node]] = {}  # id of an array -> a reference to it, and its node
        self._fresh: dict[int, Any] = {}  # arrays of tensors that the program made without an op
        self._storages: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # id of a real one -> traced
        self._masked: list[Any] = []  # weak references to tensors with a traced array
        self._saving: list[Any] = []  # weak references to nodes of autograd that saved traced arrays
        self._owners: dict[int, tuple[Any, Any, Node]] = {}  # id of memory's array -> it, a view of it, that one's node
        self._versions: dict[int, tuple[Storage, Any]] = {}  # of memory from outside: what it is expected to be
        self._leaves: dict[int, tuple[Tensor, Any, Node]] = {}  # id -> a leaf, its `.grad` at first, and its node
        self._watched: list[tuple[Tensor, Any]] = []  # leaves of modules, and their `.grad` at first
        self._assigned: set[int] = set()  # ids of leaves whose `.grad` the program set
        self._states: dict[bytes, Node] = {}  # of generators, which the program has read
        self._constants: dict[int, Node] = {}  # id of an array -> the node of a constant
        self._written: set[int] = set()  # ids of arrays of constants that are written to or returned

    def __enter__(self) -> Recorder:
        if LOCAL.transforms:
            raise RuntimeError("record(): cannot begin inside of vmap, jvp or another recording")
        self.thread = threading.get_ident()
        super().__enter__()
        self.active = True
        READERS.append(self._read_plain)
        WATCHERS.append(self._generator_changed)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.active = False
        READERS.remove(self._read_plain)
        WATCHERS.remove(self._generator_changed)
        super().__exit__(*exception)
        for reference in self._masked:
            tensor = reference()
            if tensor is not None:
                _unmask(tensor)
        for reference in self._saving:
            node = reference()
            if node is not None and node.saved is not FREED:
                node.saved = _real_saved(node.saved)

    def own_thread(self) -> None:
        """Raises: RuntimeError in a thread that does not record."""
        if LOCAL.transforms[:1] != (self,):
            raise RuntimeError(
                "capture: a tensor of a program that is being recorded was used in another thread, or outside of the "
                "recording; what is computed there is not recorded"
            )

    # --- nodes -------------------------------------------------------------------------------------------------------

    def call(self, function: Any, args: tuple, kwargs: dict | None = None) -> Node:
        """Adds a call."""
        node = self.graph.call_function(function, args, kwargs or {})
        node.meta["where"] = _program_line()
        return node

    def note(self, kind: str, node: Node, detail: str) -> None:
        """Adds an effect."""
        self.effects.append(Effect(kind, node, detail))

    def attribute(self, name: str, value: Any) -> Node:
        """Adds a node that fetches a value from the module."""
        base, n = name, 0
        while name in self.attributes and self.attributes[name] is not value:
            n += 1
            name = f"{base}_{n}"
        self.attributes[name] = value
        return self.graph.get_attr(name)

    def placeholder(self, name: str, tensor: Tensor) -> Node:
        """Adds an input."""
        if tensor.layout is not strided:
            raise NotImplementedError(f"record(): tensors of the layout {tensor.layout} are not recorded")
        node = self.graph.placeholder("input" if name == "self" else name)
        node.meta["val"] = described(tensor._array)
        if id(tensor._array) not in self._known:
            self._enter(tensor, node)
        return node

    def _enter(self, tensor: Tensor, node: Node) -> Node:
        """Makes a tensor from outside known. Returns the node of its values: those of a tensor without a graph."""
        array, storage = tensor._array, tensor._storage
        self._leaves[id(tensor)] = tensor, tensor._grad, node
        if tensor.requires_grad:
            detached = self.call(_detach, (node,))
            detached.meta["val"] = node.meta.get("val")
            node = detached
        self._known[id(array)] = (lambda: array), node
        self._versions[id(storage)] = storage, storage.version
        self._owners.setdefault(id(storage.array), (storage.array, array, node))
        return node

    def node_of(self, tensor: Tensor) -> Node:
        """The node that stands for a tensor; one from outside becomes an attribute of the module."""
        array = tensor._array
        if array.__class__ is TracedArray:
            if array.recorder is self:
                return array.node  # type: ignore[return-value]
            array = array.real
        found = self._find(array)
        if found is not None:
            self._check_version(tensor)
            return found
        if STORAGES[array.__class__].layout is not strided:
            raise NotImplementedError(f"record(): tensors of the layout {tensor.layout} are not recorded")
        owner = None if tensor._memory is None else self._owners.get(id(tensor._memory.array))
        if owner is not None and owner[0] is tensor._memory.array:  # type: ignore[union-attr]
            return self._view_in(owner, tensor)
        for leaf, first, node in list(self._leaves.values()):
            if leaf._grad is tensor and first is tensor:
                made = self.call(steps.grad_of, (node,))
                made.meta["val"] = described(array)
                return self._enter(tensor, made)
        fresh = self._fresh.pop(id(array), None)
        if fresh is not None and fresh() is array:
            return self._constant(tensor)
        node = self.attribute(self.names.get(id(tensor), "_tensor"), tensor)
        node.meta["val"] = described(array)
        return self._enter(tensor, node)

    def _find(self, array: Any) -> Node | None:
        found = self._known.get(id(array))
        return found[1] if found is not None and found[0]() is array else None

    def _constant(self, tensor: Tensor) -> Node:
        """The node of a tensor that the program made of plain values; what it is now, whatever is written to it."""
        array = tensor._array
        node = self.attribute("_constant", share(STORAGES[array.__class__].copy(array), None))
        node.meta["val"] = described(array)
        self._enter(tensor, node)
        self._constants[id(tensor._storage.array)] = node
        return self._find(array)  # type: ignore[return-value]

    def _view_in(self, owner: tuple, tensor: Tensor) -> Node:
        """The node of another view of memory that is known."""
        _, first, node = owner
        array = tensor._array
        if _geometry(array) == _geometry(first):
            made = node
        else:
            offset = _address(array) - _address(first)
            made = self.call(
                steps.view_of_memory, (node, array.shape, array.strides, offset, from_numpy_dtype(array.dtype))
            )
            made.meta["val"] = described(array)
        self._leaves.setdefault(id(tensor), (tensor, tensor._grad, made))
        self._known[id(array)] = (lambda: array), made
        return made

    def _check_version(self, tensor: Tensor) -> None:
        storage = tensor._memory
        if storage is not None:
            found = self._versions.get(id(storage))
            if found is not None and found[1] != storage.version:
                raise RuntimeError(
                    f"record(): a tensor of shape {list(tensor.shape)} was written to in a way that is not recorded"
                )

    def check_versions(self) -> None:
        """Raises: RuntimeError if memory from outside was written to without the recorder's knowledge."""
        for storage, version in self._versions.values():
            if storage.version != version:
                raise RuntimeError(
                    f"record(): a tensor of {storage.nbytes()} bytes was written to in a way that is not recorded"
                )

    def expect(self, storage: Storage) -> None:
        """Memory was written to, which is recorded."""
        if id(storage) in self._versions:
            self._versions[id(storage)] = storage, storage.version
        if id(storage.array) in self._constants:
            self._written.add(id(storage.array))

    def argument(self, value: Any) -> Any:
        """A value as the argument of a node."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if value.__class__ in (list, tuple):
            values = tuple(self.argument(v) for v in value)
            return list(values) if value.__class__ is list and not _nodes_in(values) else values
        if value.__class__ is dict:
            return {k: self.argument(v) for k, v in value.items()}
        if value.__class__ is slice:
            return slice(*(self.argument(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, tuple) and not hasattr(value, "_fields"):  # torch.Size
            return tuple(self.argument(v) for v in value)
        if value.__class__ in _PLAIN or isinstance(value, type):
            return value
        if value.__class__.__module__ == "numpy" and isinstance(value, np.generic):
            return value.item() if value.dtype.kind in "iub" else self.attribute("_value", value)
        if callable(value) and hasattr(value, "__qualname__") and hasattr(value, "__name__"):
            return value
        return self.attribute("_value", value)

    # --- masks -------------------------------------------------------------------------------------------------------

    def mask(self, tensor: Tensor, node: Node) -> None:
        """Gives a tensor a traced array."""
        array = tensor._array
        if STORAGES[array.__class__].layout is not strided:
            raise NotImplementedError(f"record(): tensors of the layout {tensor.layout} are not recorded")
        node.meta["val"] = described(array)
        self._know(array, node)
        tensor._array = TracedArray(self, array, node)
        if tensor._memory is not None:
            tensor._memory = self.storage_over(tensor._memory)
        self._masked.append(weakref.ref(tensor))

    def _know(self, array: Any, node: Node) -> None:
        try:
            self._known[id(array)] = weakref.ref(array), node
        except TypeError:  # what a kernel keeps for its backward kernel may be anything
            self._known[id(array)] = (lambda: array), node

    def storage_over(self, real: Storage) -> Storage:
        """The traced storage of a real one: always the same."""
        if real.__class__ is TracedStorage:
            return real
        found = self._storages.get(id(real))
        if found is None:
            found = self._storages[id(real)] = TracedStorage.over(self, real)
        return found

    def owner_in(self, real: Storage) -> TracedArray:
        """The traced array that owns a real storage's memory."""
        array = real.array
        node = self._find(array)
        if node is None and id(array) in self._owners:
            node = self._view_in(self._owners[id(array)], share(array, real))
        return TracedArray(self, array, node)

    def strided(self, real: Storage, shape: tuple, strides: tuple, offset: int, dtype: Any) -> TracedArray:
        """Another view of a real storage's memory."""
        made = real.strided(shape, strides, offset, dtype)
        owner = self.owner_in(real)
        if owner.node is None:
            raise RuntimeError("record(): a view of memory that is not known")
        shift = offset - real.offset_of(owner.real)
        node = self.call(
            steps.view_of_memory, (owner.node, tuple(shape), tuple(strides), shift, from_numpy_dtype(np.dtype(dtype)))
        )
        node.meta["val"] = described(made)
        self._know(made, node)
        return TracedArray(self, made, node)

    def tensor_made(self, tensor: Tensor, memory: Storage | None) -> None:
        """Called with each tensor that is made without an op (tensor.py)."""
        array = tensor._array
        if array.__class__ is TracedArray:
            self._masked.append(weakref.ref(tensor))
        elif memory is None and self._find(array) is None:
            self._fresh[id(array)] = weakref.ref(array) if array.__class__ is np.ndarray else (lambda: array)

    # --- ops ---------------------------------------------------------------------------------------------------------

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op, and adds its node."""
        tensors = list({id(t): t for t in tensors_in(args)}.values())
        if GRAD.enabled:
            for t in tensors:
                if t._requires_grad is VIEW:
                    edge_of(t)  # what makes the graph of a view again is recorded too
        given = self.argument(tuple(args))
        overwritten = LOCAL.overwritten
        into_plain = overwritten is not None and not LOCAL.computing_tangents and (
            args[0].__class__ is not TracedArray and isinstance(args[0], Tensor) and args[0]._memory is overwritten
            and args[0]._array.__class__ is not TracedArray
        )  # fmt: skip
        with self.off(), _Unmasked(self, tensors):
            result = execute(op, args)
        keeps = bool(op.cache) and _recorded_by(result, op) is not None
        target = steps.with_cache(op.name) if keeps else op.compiled.call
        node = self.call(target, given) if keeps else self.call(target, *_written(op, given))
        if op.params[-1].name == "generator":
            self.note("random", node, f"{op.name} draws random numbers")
            has_side_effect(target)
        results = result if isinstance(result, tuple) else (result,)
        sized_by_values = _size_depends_on_values(op, args)
        for i, r in enumerate(results):
            item = node if r is result and not keeps else self.call(_item, (node, i))
            if into_plain and i == 0:
                self._know(r._array, item)
                item.meta["val"] = described(r._array)
            else:
                self.mask(r, item)
            if sized_by_values:
                self.note("read", self.call(steps.check_shape, (item, tuple(r.shape))),
                          f"the shape of {item.name} depends on values")  # fmt: skip
        self._mask_saved(result, op, tensors)
        if keeps:
            saved = dict(zip(op.saved, _recorded_by(result, op).saved, strict=True))
            for i, name in enumerate(op.cache):
                kept = saved.get(name)
                if kept is not None and not isinstance(kept, int | float | bool | str):
                    self._know(kept, self.call(_item, (node, len(results) + i)))
        return result

    def _mask_saved(self, result: Any, op: Any, tensors: list[Tensor]) -> None:
        """Gives the node that an op recorded the traced arrays of what it saved: transforms know tensors by these."""
        node = _recorded_by(result, op)
        if node is not None and node.saved:
            results = result if isinstance(result, tuple) else (result,)
            arrays = [t._array for t in (*tensors, *results) if t._array.__class__ is TracedArray]
            traced = {id(array.real): array for array in arrays}

            def masked(saved: Any) -> Any:
                if saved.__class__ is list:
                    return [masked(s) for s in saved]
                if saved.__class__ is not tuple or id(saved[0]) not in traced:
                    return saved
                return traced[id(saved[0])], self.storage_over(saved[1]), saved[2]

            node.saved = tuple(masked(s) for s in node.saved)
            self._saving.append(weakref.ref(node))

    def op(self, name: str, array: TracedArray, *rest: Any) -> Any:
        """The array of an op's result."""
        with no_grad():
            return self.run(OPS[name], (share(array, None), *rest))._array

    def on_arrays(self, op: Any, args: tuple) -> Any:
        """The arrays of an op's results, whose graph is another matter."""
        with no_grad():
            result = self.run(op, args)
        return tuple(r._array for r in result) if isinstance(result, tuple) else result._array

    def cast(self, array: TracedArray, dtype: Any) -> Any:
        """The array cast to another dtype."""
        return self.op("to_copy", array, from_numpy_dtype(np.dtype(dtype)))

    def empty(self, shape: tuple, dtype: Any, device: Any) -> TracedArray:
        """Uninitialized memory."""
        real = storage_class(device).empty(tuple(shape), dtype, device)
        node = self.call(steps.empty, (tuple(shape), from_numpy_dtype(np.dtype(dtype)), device))
        node.meta["val"] = described(real)
        self._know(real, node)
        return TracedArray(self, real, node)

    def beside(self, function: Any, args: tuple, writes: tuple = (), kind: str = "") -> Any:
        """Runs a function that computes on arrays itself, beside the ops: as one node."""
        tensors = list({id(t): t for t in tensors_in(args)}.values())
        given = self.argument(tuple(args))
        with self.off(), _Unmasked(self, tensors):
            result = function(*args)
        node = self.call(function, given)
        if kind:
            self.note(kind, node, f"{node.name} draws random numbers")
            has_side_effect(function)
        for t in writes:
            self.expect(_real_storage(t))
            self.note("write", node, f"{node.name} writes to {self.node_of(t).name}")
            has_side_effect(function)
        if isinstance(result, Tensor):
            self.mask(result, node)
        elif isinstance(result, tuple | list):
            for i, r in enumerate(result):
                self.mask(r, self.call(_item, (node, i)))
        return result

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        """Runs a custom autograd function, whose ops are recorded."""
        return function._recorded(args, kwargs)

    # --- gradients ---------------------------------------------------------------------------------------------------

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
        if STORAGES[_real(given).__class__].xp is None:
            return NotImplemented
        with self.off(), _Unmasked(self, [g for g in grads if g is not None]):
            on_arrays = op.compiled.array_backwards[given._array.__class__]
            saved, node.saved = node.saved, _real_saved(node.saved)
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
                self.mask(r, self.call(_item, (call, i)))
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
                real.write(first._array, _real(now))
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
        with self.off(), _Unmasked(self, [p._grad for p in moved]):  # type: ignore[misc]
            result = step()
        node = self.call(steps.optimizer_step, (self.attribute("_optimizer", optimizer),))
        names = ", ".join(n.name for n in nodes)
        self.note("step", node, f"a step of {type(optimizer).__name__} writes to {names} and to its state")
        for p in moved:
            self.expect(p._storage)
        return result

    # --- writes ------------------------------------------------------------------------------------------------------

    def write(self, target: Any, values: Any, adds: bool = False) -> None:
        """Writes values into a traced array, or a traced array into another one."""
        real, given = _unwrapped(target), _unwrapped(values)
        storage = STORAGES[real.__class__]
        (storage.add_to if adds else storage.write)(real, given)
        node = self._node_of_array(target)
        value = self._node_of_array(values) if values.__class__ in STORAGES else self.argument(values)
        made = self.call(steps.add_to if adds else steps.write, (node, value))
        self.note("write", made, f"writes to {node.name}")

    def _node_of_array(self, array: Any) -> Node:
        if array.__class__ is TracedArray and array.node is not None:
            return array.node
        return self.node_of(share(_unwrapped(array), None))

    def stored(self, out: Tensor, result: Tensor) -> bool:
        """Writes a result into `out=`."""
        with no_grad():
            out.copy_(result)
        return True

    def written(self, tensor: Tensor, result: Tensor) -> None:
        """Called after an op's result has been written over a tensor."""
        if tensor._array.__class__ is TracedArray:
            return  # its storage has seen it
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

    # --- reads -------------------------------------------------------------------------------------------------------

    def read(self, array: Any, node: Node | None, what: str) -> None:
        """Called before values of the program are read.

        What this library reads by itself, to check arguments, becomes a check of the graph.

        Raises: ReadError for a read of the program's, unless these are noted.
        """
        frame: Any = sys._getframe(2)
        while frame.f_back is not None and _of_tensors(frame):
            frame = frame.f_back
        own = frame.f_globals.get("__name__", "").startswith("tensorgrad.")
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tensorgrad."):
            frame = frame.f_back
        where = f"({frame.f_code.co_filename}, line {frame.f_lineno})"
        name = "a tensor" if node is None else f"'{node.name}'"
        if (self.on_read == "raise" and not own) or node is None:
            raise ReadError(
                f"record(): the value of {name}, of shape {list(array.shape)}, is read as {what} {where}: what the "
                "program does with it cannot be recorded. Use torch.where and the like, or record(..., "
                "on_read='note'), whose graph checks that the value is the same."
            )
        made = self.call(steps.check_values, (node, _listed(array)))
        self.note("read", made, f"reads {name} {where}")

    def _read_plain(self, array: Any) -> None:
        """Called before an array on the CPU is read, in any thread."""
        if LOCAL.transforms[:1] != (self,) or self.reading:
            return
        node = self._find(array)
        if node is None:
            fresh = self._fresh.get(id(array))
            if fresh is not None and fresh() is array:
                return  # made of plain values
            node = self.node_of(share(array, None))
        elif any(node is constant for constant in self._constants.values()) and not self._written:
            return
        self.read(array, node, "a value")

    def _generator_changed(self, generator: Any, what: str, value: Any) -> None:
        """Called when a generator is seeded, or its state set or read, in any thread."""
        if LOCAL.transforms[:1] != (self,):
            return
        if what == "draw":
            raise NotImplementedError("record(): random numbers are drawn in a way that is not recorded")
        if what == "entropy":
            raise ReadError("record(): a generator is seeded from the system: its seed is a value of this run only")
        own = self.attribute("_generator", generator)
        if what == "read":
            self._states[value.tobytes()] = self.call(steps.generator_state, (own,))
            return
        if what == "seed":
            made = self.call(steps.seed_generator, (own, value))
        else:  # most often back to where it was
            known = self._states.get(np.ascontiguousarray(value).tobytes())
            made = self.call(steps.set_generator_state, (own, self.argument(value) if known is None else known))
        self.note("random", made, f"sets the {what} of a generator of random numbers")

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Gives constants that are written to, or returned, fresh memory in each run."""
        for key in self._written:
            node = self._constants[key]
            with self.graph.inserting_after(node):
                copy = self.graph.call_function(OPS["clone_copy"].compiled.call, (node, None))
            copy.meta["val"] = node.meta.get("val")
            node.replace_all_uses_with(copy, partial(is_not, copy))

    def returned(self, tensor: Tensor) -> Node:
        """The node of a tensor that is returned."""
        node = self.node_of(tensor)
        real = _real(tensor)
        for key in self._constants:
            if np.may_share_memory(self._owners[key][0], real):
                self._written.add(key)
        return node


class _Unmasked:
    """A context in which tensors hold their real arrays."""

    def __init__(self, recorder: Recorder, tensors: list[Tensor]) -> None:
        self.recorder = recorder
        self.tensors = [t for t in tensors if t._array.__class__ is TracedArray]

    def __enter__(self) -> None:
        self.before = [(t, t._array, t._memory) for t in self.tensors]
        for t in self.tensors:
            _unmask(t)

    def __exit__(self, *exception: Any) -> None:
        for t, array, _ in self.before:
            t._array = array
            if t._memory is not None:
                t._memory = self.recorder.storage_over(t._memory)


def _unmask(tensor: Tensor) -> None:
    if tensor._array.__class__ is TracedArray:
        tensor._array = tensor._array.real
    if tensor._memory.__class__ is TracedStorage:
        tensor._memory = tensor._memory.real


def _real_saved(saved: Any) -> Any:
    """What a node saved, with real arrays."""
    if saved.__class__ is list or (saved.__class__ is tuple and not (saved and saved[0].__class__ is TracedArray)):
        return type(saved)(_real_saved(s) if s.__class__ in (list, tuple) else s for s in saved)
    if saved.__class__ is tuple and saved[1].__class__ is TracedStorage:
        return saved[0].real, saved[1].real, saved[2]
    return saved


def _real(tensor: Tensor) -> Any:
    return _unwrapped(tensor._array)


def _unwrapped(array: Any) -> Any:
    return array.real if array.__class__ is TracedArray else array


def _real_storage(tensor: Tensor) -> Storage:
    storage = tensor._storage
    return storage.real if storage.__class__ is TracedStorage else storage


def _recorded_by(result: Any, op: Any) -> Any:
    """The node of the autograd graph that an op recorded; None if it did not."""
    first = result[0] if isinstance(result, tuple) else result
    edge = first._edge
    return edge[0] if edge is not None and getattr(edge[0], "op", None) is op else None


def _nodes_in(values: Any) -> bool:
    return any(isinstance(v, Node) for v in values)


def _program_line() -> str:
    """Where the program is now, outside of this library."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tensorgrad."):
        frame = frame.f_back
    return "" if frame is None else f"({frame.f_code.co_filename}, line {frame.f_lineno})"


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _geometry(array: Any) -> tuple:
    return _address(array), array.shape, array.strides, array.dtype


def described(array: Any) -> Tensor:
    """A meta tensor of an array's shape, strides and dtype."""
    return share(MetaArray.empty(array.shape, array.dtype, array.strides), None)


def _written(op: Any, given: tuple) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a row as a call writes them: keywords by name, and without the defaults at the end."""
    count = len(given) - sum(p.keyword for p in op.params)
    keywords = {
        p.name: value for p, value in zip(op.params[count:], given[count:], strict=True) if repr(value) != p.default
    }
    while count and repr(given[count - 1]) == op.params[count - 1].default:
        count -= 1
    return given[:count], keywords


def _listed(array: Any) -> Any:
    return (array.astype(np.float32) if array.dtype.isbuiltin == 2 else array).tolist()


def _size_depends_on_values(op: Any, args: tuple) -> bool:
    if op.name in _SIZED_BY_VALUES:
        return True
    return op.name == "index" and any(t._array.dtype.kind == "b" for t in tensors_in(args[1:]))


_SIZED_BY_VALUES = frozenset(("nonzero", "masked_select", "unique_", "unique_consecutive_", "bincount"))


def _detach(x: Tensor) -> Tensor:
    return x.detach()


_detach.__name__ = _detach.__qualname__ = "detach"


def _of_tensors(frame: Any) -> bool:
    """Whether a function is one by which a program reads tensors."""
    name = frame.f_globals.get("__name__", "")
    return name.startswith(_BY_WHICH_PROGRAMS_READ)


_BY_WHICH_PROGRAMS_READ = (
    "tensorgrad.tensor", "tensorgrad.printing", "tensorgrad.ops.create", "tensorgrad.dispatch.guard",
    "tensorgrad.overriding.", "tensorgrad.library.dispatch_", "tensorgrad.distributed.tensor.ops.composites",
    "tensorgrad.storage.", "tensorgrad.capture.",
)  # fmt: skip


def _item(values: Any, index: int) -> Any:
    return values[index]


_item.__name__ = _item.__qualname__ = "getitem"
