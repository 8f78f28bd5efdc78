"""Writes values as PyTorch's pickles: tensors as calls of PyTorch's functions, storages as references."""

from __future__ import annotations

import pickle
from types import FunctionType
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes, layouts
from tensorgrad.nn.module import PYTORCHS_STATE, Module
from tensorgrad.nn.parameter import Buffer, Parameter, is_lazy
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage
from tensorgrad.serialization.names import pytorch_name
from tensorgrad.serialization.nested import parts_of as parts_of_nested
from tensorgrad.serialization.sparse import layout_named, parts_of
from tensorgrad.serialization.tables import STORAGE_NAMES, Global, named
from tensorgrad.size import Size
from tensorgrad.storage.stubs import Storage
from tensorgrad.storage.wrapper_subclass import NoMemory
from tensorgrad.tensor import Tensor, attributes_of, state_of, wrap

UNTYPED = named("torch.storage", "UntypedStorage")
CLASSES: dict[type, Global] = {
    Tensor: named("torch", "Tensor"),
    Parameter: named("torch.nn.parameter", "Parameter"),
    Buffer: named("torch.nn.parameter", "Buffer"),
    Size: named("torch", "Size"),
    devices.device: named("torch", "device"),
}


class _Reference:
    """A storage with the type under which a tensor refers to it."""

    def __init__(self, storage: Storage, kind: Global, itemsize: int):
        self.storage, self.kind, self.itemsize = storage, kind, itemsize


class Pickler(pickle._Pickler):  # the Python version: the C version only writes names that it can import
    """Pickles to a file; afterwards `storages` contains those that the pickle refers to, by key."""

    def __init__(self, file, protocol: int):
        super().__init__(file, protocol)
        self.storages: dict[str, Storage] = {}
        self._keys: dict[int, tuple[str, Any]] = {}  # id of a storage -> its key and first type

    def persistent_id(self, obj):
        """Returns the reference to write for a storage."""
        if isinstance(obj, UntypedStorage):
            obj = _Reference(obj._storage, UNTYPED, 1)
        elif isinstance(obj, TypedStorage):
            obj = _Reference(obj._storage, named("torch", obj.pickle_storage_type()), obj.dtype.itemsize)
        if not isinstance(obj, _Reference):
            return None
        storage = obj.storage
        if id(storage) not in self._keys:
            key = str(len(self._keys))
            self._keys[id(storage)] = key, obj.kind
            self.storages[key] = storage
        key, kind = self._keys[id(storage)]
        if obj.kind != kind and UNTYPED not in (kind, obj.kind) and storage.nbytes():
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different types "
                f"({kind.name} and {obj.kind.name})"
            )
        return "storage", obj.kind, key, str(storage.device), storage.nbytes() // obj.itemsize

    def reducer_override(self, obj):
        """Defines how tensors, dtypes and names are written; everything else is pickled normally."""
        if is_lazy(obj):  # an uninitialized parameter has no storage
            return named("torch.nn.parameter", type(obj).__name__), obj.__reduce_ex__(2)[1]
        if isinstance(obj, Tensor):
            return _tensor(obj)
        if isinstance(obj, Global | dtypes.dtype | layouts.memory_format):
            return obj.name
        if type(obj) is Size:
            return CLASSES[Size], (tuple(obj),)
        if isinstance(obj, FunctionType):
            return obj.__qualname__
        if isinstance(obj, Module):
            return with_pytorchs_state(obj.__reduce_ex__(self.proto))  # type: ignore[attr-defined]
        if type(obj) is devices.device:
            return CLASSES[devices.device], (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def save_global(self, obj, name=None):
        """Writes a name: PyTorch's for objects that PyTorch has."""
        known: Global | None = None
        if isinstance(obj, dtypes.dtype | layouts.memory_format):
            known = named("torch", obj.name)
        elif isinstance(obj, Global):
            known = obj
        else:
            known = (CLASSES.get(obj) if isinstance(obj, type) else None) or pytorch_name(obj)
        if known is None:
            return super().save_global(obj, name)  # type: ignore[misc]
        self.write(pickle.GLOBAL + f"{known.module}\n{known.name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]
        return None


def _tensor(tensor: Tensor) -> tuple:
    """The call that rebuilds a tensor."""
    from collections import OrderedDict

    if tensor.is_nested:
        return _nested(tensor)
    if tensor._edge is not None and type(tensor) is not Tensor:
        raise RuntimeError("a subclass of Tensor with a history cannot be saved: detach() it first")
    dtype, hooks = tensor.dtype, OrderedDict()  # type: ignore[var-annotated]
    if tensor._array.__class__ is NoMemory:
        made = type(tensor), dtype, tuple(tensor.shape), tensor.stride(), 0, tensor.layout, tensor.device
        function = named("torch._utils", "_rebuild_wrapper_subclass")
        return named("torch._tensor", "_rebuild_from_type_v2"), (
            function, type(tensor), (*made, tensor.requires_grad), state_of(tensor),
        )  # fmt: skip
    if isinstance(tensor, Parameter):
        data = _tensor(tensor.detach())
        if attributes := attributes_of(tensor):
            return named("torch._utils", "_rebuild_parameter_with_state"), (
                _Call(*data), tensor.requires_grad, hooks, attributes,
            )  # fmt: skip
        return named("torch._utils", "_rebuild_parameter"), (_Call(*data), tensor.requires_grad, hooks)
    if tensor.device.type == "meta":
        return named("torch._utils", "_rebuild_meta_tensor_no_storage"), (
            dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad,
        )  # fmt: skip
    args: tuple
    if tensor.is_quantized:
        return _quantized(tensor)
    if tensor.layout is not layouts.strided:
        function = named("torch._utils", "_rebuild_sparse_tensor")
        return function, (_Call(named("torch.serialization", "_get_layout"), (layout_named(tensor),)), parts_of(tensor))
    geometry = tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad, hooks
    name = STORAGE_NAMES.get(dtype.name)
    if name is None:
        reference = _Reference(tensor._storage, UNTYPED, 1)
        function, args = named("torch._utils", "_rebuild_tensor_v3"), (reference, *geometry, dtype)
    else:
        reference = _Reference(tensor._storage, named("torch", name), dtype.itemsize)
        function, args = named("torch._utils", "_rebuild_tensor_v2"), (reference, *geometry)
    if attributes_of(tensor) or type(tensor) is not Tensor:
        return named("torch._tensor", "_rebuild_from_type_v2"), (function, type(tensor), args, state_of(tensor))
    return function, args


def _quantized(tensor: Tensor) -> tuple:
    """The call that rebuilds a quantized tensor: its integers, its scheme, and what belongs to it."""
    from collections import OrderedDict

    array, ints = tensor._array, wrap(np.ascontiguousarray(tensor._array.ints))
    params: tuple = tensor.qscheme(), array.scale, array.zero_point
    if array.axis is not None:
        params = (params[0], tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), array.axis)
    reference = _Reference(ints._storage, named("torch", f"{dtypes.scalar_type(tensor)}Storage"), array.itemsize)
    return named("torch._utils", "_rebuild_qtensor"), (
        reference, 0, tuple(ints.shape), ints.stride(), params, False, OrderedDict(),
    )  # fmt: skip


def _nested(tensor: Any) -> tuple:
    """The call that rebuilds a nested tensor."""
    module, name, args = parts_of_nested(tensor)
    attributes, function = tensor._attributes(), named(module, name)
    if tensor.layout is layouts.strided and not attributes:
        return function, args
    cls = named(module, "NestedTensor") if tensor.layout is layouts.jagged else CLASSES[Tensor]
    return named("torch._tensor", "_rebuild_from_type_v2"), (function, cls, args, attributes)


def with_pytorchs_state(made: Any) -> Any:
    """A module's reduction with all attributes of PyTorch's modules, in their order."""
    if not isinstance(made, tuple) or len(made) < 3 or not isinstance(made[2], dict) or "_modules" not in made[2]:
        return made
    state = {name: made[2].get(name, make()) for name, make in PYTORCHS_STATE.items()}
    state.update((name, value) for name, value in made[2].items() if name != "_hooked")
    return *made[:2], state, *made[3:]


class _Call:
    """A nested call."""

    def __init__(self, function: Global, args: tuple):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args
