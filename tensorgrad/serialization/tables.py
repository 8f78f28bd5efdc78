"""The names that PyTorch's checkpoints use, and their meaning here. No other name in a file has a meaning.

A checkpoint is a pickle together with the contents of its storages. In the pickle a tensor is a call of one of
PyTorch's private `_rebuild_*` functions on a storage, and a storage is a reference
`("storage", type, key, location, elements)`.
"""

from __future__ import annotations

import functools
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage, memory_of, shown
from tensorgrad.serialization.describe import described
from tensorgrad.serialization.nested import rebuild_jagged, rebuild_strided
from tensorgrad.storage.meta import MetaArray
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor, share, wrap


class Global(NamedTuple):
    """A name as it appears in a pickle: `Global("torch", "FloatStorage")`."""

    module: str
    name: str

    def __call__(self, *args):  # picklers only write callables as names
        raise TypeError(f"{self.module}.{self.name} is a name in a file, not a function")

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@functools.cache
def named(module: str, name: str) -> Global:
    """Returns a unique object for each name, so that a pickle contains it only once."""
    return Global(module, name)


class NoPlace(RuntimeError):
    """The location that a file specifies for a storage is not available."""


class StorageType(NamedTuple):
    """The meaning of `torch.FloatStorage`: the dtype of the elements, None for untyped bytes."""

    dtype: Any

    @property
    def itemsize(self) -> int:
        return 1 if self.dtype is None else self.dtype.itemsize


UNTYPED = StorageType(None)
STORAGE_NAMES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip
STORAGE_TYPES = {
    f"{module}.{name}": StorageType(dtypes.BY_NAME[dtype])
    for dtype, name in STORAGE_NAMES.items()
    for module in ("torch", "torch.cuda")
} | {"torch.storage.UntypedStorage": UNTYPED, "torch.UntypedStorage": UNTYPED}
STORAGE_TYPES |= {f"torch.{name}": StorageType(dtypes.BY_NAME[stored]) for name, stored in (
    ("QInt8Storage", "int8"), ("QUInt8Storage", "uint8"), ("QInt32Storage", "int32"))}  # fmt: skip


def stored(storage: Storage, kind: StorageType) -> UntypedStorage | TypedStorage:
    """Returns a storage in the form that programs receive: with the type under which the file names it."""
    if kind.dtype is None:
        return shown(storage)
    return TypedStorage(wrap_storage=storage, dtype=kind.dtype, _internal=True)


def as_text(value: Any) -> Any:
    """A string of a reference to a storage, which is bytes if Python 2's strings are loaded as bytes."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


# --- from a storage to a tensor --------------------------------------------------------------------------------------


def rebuild_tensor(memory, offset, size, stride, dtype=None, requires_grad=False, metadata=None) -> Tensor:
    """Creates a tensor over a storage; `offset` and `stride` are in elements.

    Raises: ValueError if sizes, strides and offset exceed the storage.
    """
    if not isinstance(memory, Storage | UntypedStorage | TypedStorage):
        raise ValueError(f"a tensor needs a storage, but the file contains {described(memory)}")
    storage = memory_of(memory)
    dtype = getattr(memory, "dtype", None) if dtype is None else dtype
    if not isinstance(dtype, dtypes.dtype):
        raise ValueError(f"a tensor over an untyped storage needs a dtype, but the file contains {described(dtype)}")
    size, stride = _geometry(size, stride, dtype.itemsize)
    if type(offset) is not int or offset < 0:
        raise ValueError(f"a tensor's storage offset must be a non-negative integer, not {described(offset)}")
    available = storage.nbytes() // dtype.itemsize
    length = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    if length and offset + length > available:
        raise ValueError(
            f"a tensor of size {size}, strides {stride} and offset {described(offset)} does not fit into its storage "
            f"of {available} elements"
        )
    conj, neg = (isinstance(metadata, dict) and metadata.get(flag) is True for flag in ("conj", "neg"))
    if conj or neg:
        storage, offset = _computed(storage, dtype, offset, length, conj, neg), 0
    if not length and offset > available:  # some files have empty tensors beyond the end
        offset = 0
    strides = tuple(s * dtype.itemsize for s in stride)
    array = storage.strided(size, strides, offset * dtype.itemsize, dtype.numpy)
    tensor = share(array, storage)
    if requires_grad:
        tensor.requires_grad_()
    return tensor


def _geometry(size, stride, itemsize: int) -> tuple[tuple, tuple]:
    """Sizes and strides as tuples. Raises: ValueError if they are impossible."""
    for name, values in (("size", size), ("stride", stride)):
        if not isinstance(values, tuple | list) or len(values) > 64:
            raise ValueError(
                f"a tensor's {name} must be at most 64 integers, but the file contains {described(values)}"
            )
        if not all(type(n) is int and 0 <= n < 2**63 // itemsize for n in values):
            raise ValueError(
                f"a tensor's {name} must be non-negative integers, but the file contains {described(values)}"
            )
    if len(size) != len(stride):
        raise ValueError(f"a tensor with {len(size)} sizes and {len(stride)} strides")
    return tuple(size), tuple(stride)


def _computed(storage: Storage, dtype, offset: int, length: int, conj: bool, neg: bool) -> Storage:
    """Computes the conjugate or negative, which PyTorch only marks, once for each element of the storage, even if a
    tensor shows it repeatedly."""
    flat = rebuild_tensor(storage, offset, (length,), (1,), dtype)
    flat = flat.conj() if conj else flat
    flat = -flat if neg else flat
    return flat.contiguous()._storage


def _rebuild_tensor(storage, offset, size, stride) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride)


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata=None) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride, None, requires_grad is True, metadata)


def _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride, dtype, requires_grad is True, metadata)


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad) -> Tensor:
    if not isinstance(dtype, dtypes.dtype):
        raise ValueError(f"a meta tensor needs a dtype, but the file contains {described(dtype)}")
    size, stride = _geometry(size, stride, dtype.itemsize)
    strides = tuple(n * dtype.itemsize for n in stride)
    return wrap(MetaArray.empty(size, dtype.numpy, strides)).requires_grad_(requires_grad is True)


def _rebuild_wrapper_subclass(cls, dtype, size, stride, offset, layout, device, requires_grad) -> Tensor:
    """A tensor without memory of its own. (Its class can only be one that the file may name.)"""
    if not (isinstance(cls, type) and issubclass(cls, Tensor) and hasattr(cls, "__torch_dispatch__")):
        raise ValueError(f"expected a class of tensors with __torch_dispatch__, but the file contains {described(cls)}")
    if not (isinstance(dtype, dtypes.dtype) and isinstance(device, devices.device)):
        raise ValueError(f"expected a dtype and a device, but the file contains {described((dtype, device))}")
    size, stride = _geometry(size, stride, dtype.itemsize)
    return Tensor._make_wrapper_subclass(
        cls, size, stride, dtype=dtype, device=device, requires_grad=requires_grad is True
    )


def _rebuild_sparse_tensor(layout, data) -> Tensor:
    from tensorgrad.serialization.sparse import rebuild

    return rebuild(layout, data)


_QUANTIZED = {"uint8": "quint8", "int8": "qint8", "int32": "qint32"}


def _rebuild_quantized(storage, offset, size, stride, params, requires_grad, hooks) -> Tensor:
    """A quantized tensor of integers: `params` are its scheme and what belongs to it."""
    from tensorgrad.ops.pytorch.quantized_tensors import from_integers

    ints = rebuild_tensor(storage, offset, size, stride)
    kind = _QUANTIZED.get(ints.dtype.name)
    if kind is None or type(params) is not tuple or len(params) not in (3, 4):
        raise ValueError(f"a quantized tensor cannot be made of {ints.dtype} and {described(params)}")
    _, scale, zero_point, *axis = params
    if not axis and type(scale) is float and type(zero_point) is int:
        return from_integers(ints._array, scale, zero_point, dtypes.BY_NAME[kind])
    channels = [t for t in (scale, zero_point) if isinstance(t, Tensor) and t.ndim == 1 and t.device.type == "cpu"]
    if len(axis) != 1 or type(axis[0]) is not int or not 0 <= axis[0] < ints.ndim or len(channels) != 2:
        raise ValueError(f"a quantized tensor cannot have {described(params)}")
    if any(len(t) != ints.shape[axis[0]] or t.dtype.category == dtypes.COMPLEX for t in channels):
        raise ValueError(f"a quantized tensor of size {tuple(ints.shape)} cannot have {described(params)}")
    return from_integers(ints._array, scale._array, zero_point._array, dtypes.BY_NAME[kind], axis[0])


def _rebuild_parameter(data, requires_grad, hooks):
    from tensorgrad.nn import Parameter

    return Parameter(_tensor(data), requires_grad is True)


def _rebuild_parameter_with_state(data, requires_grad, hooks, state):
    return set_state(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(function, cls, args, state):
    """A tensor with additional attributes. (Its class can only be one that the file may name.)"""
    inner = any(function is known for known in REBUILD.values()) and function is not _rebuild_from_type_v2
    if not inner or type(args) is not tuple:
        raise ValueError(f"a tensor cannot be rebuilt by {described(function)} from {described(args)}")
    tensor = _tensor(function(*args))
    if isinstance(cls, type) and issubclass(cls, Tensor) and type(tensor) is not cls and not tensor.is_nested:
        made = share(tensor._array, tensor._storage, cls)
        made._requires_grad = tensor._requires_grad
        tensor = made
    return set_state(tensor, state)


def _tensor(value) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"expected a tensor, but the file contains {described(value)}")
    return value


def set_state(tensor: Tensor, state) -> Tensor:
    """Sets attributes that a program added to a tensor. (Never those of the class: a file must not replace methods, nor
    the parts of a nested tensor.)"""
    cls = type(tensor)
    if hasattr(cls, "__setstate__"):  # a class of the program, which may be named because it is trusted
        cls.__setstate__(tensor, state)
        return tensor
    state, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if isinstance(state, dict):
        own = getattr(cls, "_own", ())
        for name, value in state.items():
            if type(name) is str and name not in own and not _is_method(getattr(cls, name, None)):
                tensor.__dict__[name] = value
    if isinstance(slots, dict):
        for name, value in slots.items():
            attribute = getattr(cls, name, None) if type(name) is str and name not in Tensor.__slots__ else None
            if isinstance(attribute, MemberDescriptorType):
                setattr(tensor, name, value)
    return tensor


def _is_method(attribute) -> bool:
    """Whether an attribute of a class is more than a plain value that its instances may replace."""
    return callable(attribute) or hasattr(type(attribute), "__get__")


def _layout(name):
    from tensorgrad import layouts

    found = getattr(layouts, name.removeprefix("torch."), None) if type(name) is str else None
    if not isinstance(found, layouts.layout):
        raise ValueError(f"there is no layout {described(name)}")
    return found


REBUILD: dict[str, Any] = {
    "torch._utils._rebuild_qtensor": _rebuild_quantized,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta_tensor_no_storage,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse_tensor,
    "torch._utils._rebuild_nested_tensor": rebuild_strided,
    "torch.nested._internal.nested_tensor._rebuild_njt": rebuild_jagged,
    "torch._utils._rebuild_wrapper_subclass": _rebuild_wrapper_subclass,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2,
    "torch.serialization._get_layout": _layout,
}


def bytes_of(storage: Storage) -> np.ndarray:
    """Returns a storage's contents as bytes on the host."""
    flat = storage.strided((storage.nbytes(),), (1,), 0, np.dtype("uint8"))
    return np.ascontiguousarray(storage.to_host(flat))
