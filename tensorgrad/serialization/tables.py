"""The names that PyTorch's checkpoints use, and what they mean here. Nothing else in a file has a meaning.

A checkpoint is a pickle beside the bytes of its storages. In the pickle a tensor is a call of one of PyTorch's private
`_rebuild_*` functions over a storage, and a storage a reference `("storage", type, key, location, elements)`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.storage.stubs import Storage, storage_class
from tensorgrad.tensor import Tensor, share, wrap


class Global(NamedTuple):
    """A name as it stands in a pickle: `Global("torch", "FloatStorage")`."""

    module: str
    name: str

    def __call__(self, *args):  # a pickler only writes what could be called
        raise TypeError(f"{self.module}.{self.name} is a name in a file, not a function")

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@functools.cache
def named(module: str, name: str) -> Global:
    """One object for each name: a pickle then holds it once."""
    return Global(module, name)


class NoPlace(RuntimeError):
    """Where a file wants a storage to go, none can."""


class StorageType(NamedTuple):
    """What `torch.FloatStorage` stands for: the dtype of the elements, None if it is only bytes."""

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


class StoredStorage(NamedTuple):
    """A storage that was found in a file: the bytes, and the type under which the file names them."""

    storage: Storage
    dtype: Any


# --- from a storage to a tensor --------------------------------------------------------------------------------------


def rebuild_tensor(stored: StoredStorage, offset: int, size, stride, dtype=None, requires_grad=False) -> Tensor:
    """A tensor over a stored storage; `offset` and `stride` in elements.

    Raises: ValueError for sizes, strides or an offset that point outside of the storage.
    """
    if not isinstance(stored, StoredStorage):
        raise ValueError(f"a tensor needs a storage, but the file gives it {type(stored).__name__}")
    dtype = dtype or stored.dtype
    if not isinstance(dtype, dtypes.dtype):
        raise ValueError(f"a tensor over an untyped storage needs a dtype, but the file gives {dtype!r}")
    size, stride = _whole_numbers("size", size), _whole_numbers("stride", stride)
    (offset,) = _whole_numbers("storage offset", (offset,))
    if len(size) != len(stride) or len(size) > 64:
        raise ValueError(f"a tensor with {len(size)} sizes and {len(stride)} strides")
    held = stored.storage.nbytes() // dtype.itemsize
    if 0 not in size and offset + sum((n - 1) * s for n, s in zip(size, stride)) >= held:
        raise ValueError(
            f"a tensor of size {size}, strides {stride} and offset {offset} does not fit into its storage of {held} "
            f"elements"
        )
    if any(n * dtype.itemsize >= 2**63 for n in (*stride, *size)):
        raise ValueError(f"a tensor of size {size} and strides {stride} is beyond any memory")
    if 0 in size:  # it has no place, and some files give it one beyond the end
        offset = 0
    strides = tuple(s * dtype.itemsize for s in stride)
    array = stored.storage.strided(size, strides, offset * dtype.itemsize, dtype.numpy)
    tensor = share(array, stored.storage)
    if requires_grad:
        tensor.requires_grad_()
    return tensor


def _whole_numbers(what: str, values) -> tuple:
    if not isinstance(values, tuple | list) or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError(f"a tensor's {what} must be whole numbers from 0, but the file gives {values!r:.80}")
    return tuple(values)


def _rebuild_tensor(storage, offset, size, stride) -> Tensor:
    return rebuild_tensor(storage, offset, size, stride)


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata=None) -> Tensor:
    return _marked(rebuild_tensor(storage, offset, size, stride, None, requires_grad is True), metadata)


def _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None) -> Tensor:
    return _marked(rebuild_tensor(storage, offset, size, stride, dtype, requires_grad is True), metadata)


def _marked(tensor: Tensor, metadata) -> Tensor:
    """What PyTorch marks as conjugated or negated without computing it is computed here."""
    metadata = metadata if isinstance(metadata, dict) else {}
    wanted = tensor.requires_grad
    if metadata.get("conj"):
        tensor = tensor.detach().conj().requires_grad_(wanted)
    if metadata.get("neg"):
        tensor = (-tensor.detach()).requires_grad_(wanted)
    return tensor


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad) -> Tensor:
    if not isinstance(dtype, dtypes.dtype):
        raise ValueError(f"a meta tensor needs a dtype, but the file gives {dtype!r:.80}")
    size, stride = _whole_numbers("size", size), _whole_numbers("stride", stride)
    tensor = wrap(storage_class(devices.device("meta")).empty(size, dtype.numpy, devices.device("meta")))
    return tensor.as_strided(size, stride).detach().requires_grad_(requires_grad is True)


def _rebuild_parameter(data, requires_grad, hooks):
    from tensorgrad.nn import Parameter

    return Parameter(_tensor(data), requires_grad is True)


def _rebuild_parameter_with_state(data, requires_grad, hooks, state):
    return set_state(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(function, cls, args, state):
    """A tensor with attributes of its own. (Its class can only be one that the file may name.)"""
    if function not in REBUILD.values() or not isinstance(args, tuple):
        raise ValueError(f"a tensor cannot be rebuilt by {function!r:.80}")
    tensor = _tensor(function(*args))
    if isinstance(cls, type) and issubclass(cls, Tensor) and type(tensor) is not cls:
        made = share(tensor._array, tensor._storage, cls)
        made._requires_grad = tensor._requires_grad
        tensor = made
    return set_state(tensor, state)


def _tensor(value) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"expected a tensor, but the file gives {type(value).__name__}")
    return value


def set_state(tensor: Tensor, state) -> Tensor:
    """Attributes that a program hung on a tensor. (Never those of the class: a file must not replace a method.)"""
    if isinstance(state, dict):
        for name, value in state.items():
            if type(name) is str and not hasattr(type(tensor), name):
                tensor.__dict__[name] = value
    return tensor


def _layout(name):
    from tensorgrad import layouts

    found = getattr(layouts, str(name).removeprefix("torch."), None)
    if found is None:
        raise ValueError(f"only dense tensors are supported, not the layout {name!r:.40}")
    return found


REBUILD: dict[str, Any] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta_tensor_no_storage,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2,
    "torch.serialization._get_layout": _layout,
}


def bytes_of(storage: Storage) -> np.ndarray:
    """A storage's memory as bytes, on the host."""
    flat = storage.strided((storage.nbytes(),), (1,), 0, np.dtype("uint8"))
    return np.ascontiguousarray(storage.to_host(flat))
