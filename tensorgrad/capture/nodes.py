"""What a recorder knows: the graph, the nodes of arrays, and what memory from outside is expected to be."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np

from tensorgrad.capture import steps
from tensorgrad.capture.masks import described
from tensorgrad.capture.traced import TracedArray, TracedStorage
from tensorgrad.devices import device as Device
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.fx import Graph, Node
from tensorgrad.layouts import layout, memory_format, strided
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.fresh import LINE
from tensorgrad.storage.stubs import STORAGES, Storage
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch import BatchedArray
from tensorgrad.transforms.transform import Transform

_PLAIN = (int, float, bool, complex, str, type(None), Dtype, Device, layout, memory_format, type(...))


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


class Nodes(Transform):
    """What a recorder knows while it records what this thread does within a `with` block.

    `on_read` says what a read of a value does: "raise" an error, or "note" it, and have the graph check that the
    value is the same when it runs. `with_kernels`: what transforms compute by kernels of their own, as those of `vmap`,
    is one step each, so that no bit changes; else it is the ops that they stand for.
    """

    name = "capture"
    records = True

    def __init__(self, on_read: str = "raise", with_kernels: bool = False) -> None:
        if on_read not in ("raise", "note"):
            raise ValueError(f"record(): on_read has to be 'raise' or 'note', but got {on_read!r}")
        self.on_read, self.with_kernels = on_read, with_kernels
        self.on_node: Callable[[Node], None] | None = None  # called with each call that is added
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
        if self.on_node is not None:
            self.on_node(node)
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
            detached = self.call(steps.detach, (node,))
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

    def class_of(self, array: Any) -> Any:
        """The class of the real array."""
        return array.real.__class__ if array.__class__ is TracedArray else array.__class__

    def shares(self, tensor: Tensor) -> None:
        """Makes a tensor from outside known, as what lasts: one that is made of its array may not."""
        while tensor._array.__class__ is BatchedArray:
            tensor = tensor._array.value
        self.node_of(tensor)

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
        node.meta["owns"] = array.__class__ is np.ndarray and _owns(array) and self._find(array) is None
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


def _nodes_in(values: Any) -> bool:
    return any(isinstance(v, Node) for v in values)


def _owns(array: np.ndarray) -> bool:
    """Whether nothing else is known to refer to the memory of an array: it has its own, or a block made for it."""
    block = array.base
    return block is None or (
        block.__class__ is np.ndarray and block.base is None and block.nbytes <= array.nbytes + LINE
        and getrefcount(block) <= 3  # the array, the name above, and this argument
    )  # fmt: skip


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _geometry(array: Any) -> tuple:
    return _address(array), array.shape, array.strides, array.dtype


def _program_line() -> str:
    """Where the program is now, outside of this library."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tensorgrad."):
        frame = frame.f_back
    return "" if frame is None else f"({frame.f_code.co_filename}, line {frame.f_lineno})"
