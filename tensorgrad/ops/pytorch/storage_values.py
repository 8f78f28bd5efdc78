"""Storages as sequences: of bytes (`untyped_storage()`), and in PyTorch's older fashion of elements (`storage()`)."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.errors import warn
from tensorgrad.ops.create import resolve_device, tensor
from tensorgrad.storage.stubs import Storage, storage_class
from tensorgrad.tensor import Tensor, share


def elements(storage: Storage, dtype: dtypes.dtype) -> Tensor:
    """All the memory as a vector of that dtype."""
    size = storage.nbytes() // dtype.itemsize
    return share(storage.strided((size,), (dtype.itemsize,), 0, dtype.numpy), storage)


_warning = {"always": False, "given": False}  # of typed storages


def warn_of_typed() -> None:
    """PyTorch's warning, once in a program unless it wants it always."""
    if _warning["given"] and not _warning["always"]:
        return
    _warning["given"] = True
    warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
        "class. This should only matter to you if you are using storages directly.  To access UntypedStorage "
        "directly, use tensor.untyped_storage() instead of tensor.storage()"
    )


def _get_always_warn_typed_storage_removal() -> bool:
    return _warning["always"]


def _set_always_warn_typed_storage_removal(always_warn: bool) -> None:
    _warning["always"] = always_warn


def _reset_warn_typed_storage_removal() -> None:
    _warning["given"] = False


def _memory(called: str, args: tuple, dtype: dtypes.dtype, device) -> Storage:
    """New memory for a number of elements, or with the elements of a sequence; without either, none."""
    device = resolve_device(device)
    if len(args) > 1:
        raise RuntimeError(f"{called}Too many positional arguments")
    data = args[0] if args else 0
    if isinstance(data, Sequence):
        return tensor(data, dtype=dtype, device=device)._storage
    try:
        size = operator.index(data)
    except TypeError:
        raise TypeError(f"{called}Argument type not recognized: {type(data)}") from None
    if size < 0:
        raise RuntimeError(f"{called}a storage cannot have {size} elements")
    made = storage_class(device)
    if device.type == "cpu":
        return made.of(np.zeros(size, dtype.numpy))
    return made.of(made.empty((size,), dtype.numpy, device))


class TypedStorage:
    """A storage as a sequence of numbers of one dtype: what `tensor.storage()` returns.

    `TypedStorage(n)` is new memory for n numbers, `TypedStorage([1, 2])` holds these, and `wrap_storage=` is memory
    that is there.

    Raises: RuntimeError or TypeError for anything else.

    >>> import tensorgrad as torch
    >>> memory = torch.arange(6.0).reshape(2, 3)[0].untyped_storage()
    >>> torch.TypedStorage(wrap_storage=memory, dtype=torch.float32).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    is_sparse = False

    def __init__(self, *args, device=None, dtype=None, wrap_storage: Storage | None = None, _internal: bool = False):
        called = "TypedStorage.__init__ received an invalid combination of arguments: "
        if not _internal:
            warn_of_typed()
        if wrap_storage is not None:
            if args or device is not None:
                raise RuntimeError(f"{called}'wrap_storage' stands alone, beside 'dtype'")
            if dtype is None:
                raise RuntimeError(f"{called}Argument 'dtype' must be specified")
            if not isinstance(wrap_storage, Storage):
                raise TypeError(f"{called}Argument 'wrap_storage' must be UntypedStorage, not {type(wrap_storage)}")
        if dtype is not None and not isinstance(dtype, dtypes.dtype):
            raise TypeError(f"{called}Argument 'dtype' must be torch.dtype, not {type(dtype)}")
        self.dtype = dtype or dtypes.DEFAULT.floating
        self._untyped = _memory(called, args, self.dtype, device) if wrap_storage is None else wrap_storage

    def untyped(self) -> Storage:
        """The memory itself."""
        return self._untyped

    @property
    def device(self) -> devices.device:
        """Where the memory is."""
        return self._untyped.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self.device.type == "cuda"

    def type(self, dtype=None, non_blocking: bool = False):
        """PyTorch's name of the kind of storage, `torch.FloatStorage`; the elements in another one if it is given."""
        if dtype is not None:
            found: Any = legacy_types().get(dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype
            return self.to_dtype(getattr(found, "dtype", found))
        prefix = "torch." if self.device.type == "cpu" else f"torch.{self.device.type}."
        return f"{prefix}{dtypes.SPOKEN[self.dtype.name]}Storage"

    def pickle_storage_type(self) -> str:
        """The name of the kind of storage in files: `FloatStorage`."""
        return f"{dtypes.SPOKEN[self.dtype.name]}Storage"

    def get_device(self) -> int:
        """The index of the device; -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def resizable(self) -> bool:
        """Whether `resize_` works: unless a tensor or array has the memory."""
        return _resizable(self._untyped)

    def resize_(self, size: int) -> None:
        """Makes room for that many elements."""
        _resize_(self._untyped, size * self.dtype.itemsize)

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, *, dtype=None, device=None) -> TypedStorage:
        """A copy of the elements in a buffer. `byte_order` is "native", "little" or "big".

        Raises: ValueError for another order, RuntimeError for none where an element has several bytes.
        """
        dtype = dtype or dtypes.DEFAULT.floating
        return cls(wrap_storage=_from_buffer(buffer, byte_order, dtype=dtype), dtype=dtype, _internal=True)

    @classmethod
    def from_file(cls, filename, shared: bool = False, size: int = 0, dtype=None) -> TypedStorage:
        """A storage whose memory is a file, read as it is needed; see `torch.from_file`."""
        dtype = dtype or dtypes.DEFAULT.floating
        memory = Storage.from_file(filename, shared, size * dtype.itemsize)  # type: ignore[attr-defined]
        return cls(wrap_storage=memory, dtype=dtype, _internal=True)

    def __eq__(self, other) -> bool:
        """Whether both are the same memory, element for element of the same dtype."""
        return isinstance(other, TypedStorage) and other._untyped is self._untyped and other.dtype is self.dtype

    def __hash__(self) -> int:
        return hash((id(self._untyped), self.dtype))

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> TypedStorage:
        return TypedStorage(wrap_storage=_deepcopy(self._untyped, memo), dtype=self.dtype, _internal=True)

    @property
    def _untyped_storage(self) -> Storage:
        return self._untyped

    @property
    def _cdata(self) -> int:
        return id(self._untyped)

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.dtype.itemsize

    _size = __len__ = size

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped.data_ptr()

    def tolist(self) -> list:
        """The elements as Python numbers. Raises: NotImplementedError for a storage on the meta device."""
        if not self.nbytes():
            return []
        _check_values(self._untyped)
        return elements(self._untyped, self.dtype).tolist()

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def _check_index(self, index) -> None:
        _check_values(self._untyped)
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -self.size() <= index < self.size():
            raise IndexError(f"index {index} out of range for storage of size {self.size()}")

    def __getitem__(self, index: int):
        self._check_index(index)
        return elements(self._untyped, self.dtype)[index].item()

    def __setitem__(self, index, value) -> None:
        if not isinstance(index, slice) and self.device.type != "meta":
            self._check_index(index)
        elements(self._untyped, self.dtype)[index] = value

    def fill_(self, value) -> TypedStorage:
        """Sets every element."""
        elements(self._untyped, self.dtype).fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Overwrites the bytes with those of another storage. Raises: RuntimeError for one of another size."""
        _copy_(self._untyped, source._untyped)
        return self

    def to_dtype(self, dtype: dtypes.dtype) -> TypedStorage:
        """The elements in another dtype, in memory of their own; itself if they have it."""
        if dtype is self.dtype:
            return self
        return TypedStorage(
            wrap_storage=elements(self._untyped, self.dtype).to(dtype)._storage, dtype=dtype, _internal=True
        )

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=_clone(self._untyped), dtype=self.dtype, _internal=True)

    def cpu(self) -> TypedStorage:
        """The storage in main memory."""
        return self._moved("cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a CUDA device."""
        return self._moved("cuda" if device is None else device)

    def _moved(self, device) -> TypedStorage:
        here = elements(self._untyped, self.dtype)
        there = here.to(device=device)
        return self if there is here else TypedStorage(wrap_storage=there._storage, dtype=self.dtype, _internal=True)

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return self.is_cuda

    def is_pinned(self) -> bool:
        """Whether the memory is locked in place for fast copies to a GPU."""
        return elements(self._untyped, self.dtype).is_pinned()

    def _get_legacy_storage_class(self) -> LegacyStorage | None:
        return legacy_types().get(self.pickle_storage_type()) if self.device.type == "cpu" else None

    def __repr__(self) -> str:
        lines = "\n".join(f" {value}" for value in self.tolist()) if self.device.type != "meta" else "..."
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}"
        return f"{lines}\n[{kind}]"


def _caster(name: str, dtype: dtypes.dtype) -> None:
    def method(self: TypedStorage) -> TypedStorage:
        return self.to_dtype(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"The elements as {dtype}, in memory of their own; itself if they are."
    setattr(TypedStorage, name, method)


CASTS = {
    "bool": dtypes.bool, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "float": dtypes.float32,
    "double": dtypes.float64, "complex_float": dtypes.complex64, "complex_double": dtypes.complex128,
}  # fmt: skip
for _name, _dtype in CASTS.items():
    _caster(_name, _dtype)


class LegacyStorage:
    """One of the names `torch.FloatStorage`, ...: makes typed storages of its dtype, and knows them."""

    def __init__(self, dtype: dtypes.dtype):
        self.dtype = dtype
        self.__name__ = self.__qualname__ = f"{dtypes.SPOKEN[dtype.name]}Storage"
        self.__module__ = "torch"

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def __call__(self, *args, wrap_storage: Storage | None = None, _internal=False, **options) -> TypedStorage:
        """A storage from a number of elements, from a sequence of them, or over memory that is there.

        Raises: RuntimeError for `dtype` and `device`, which the name says, TypeError for other things.
        """
        for name in options:
            raise RuntimeError(
                f"{self!r}.__new__ received an invalid combination of arguments: Keyword argument '{name}' cannot be "
                "specified"
            )
        if wrap_storage is not None:
            return TypedStorage(*args, wrap_storage=wrap_storage, dtype=self.dtype, _internal=_internal)
        return TypedStorage(*args, dtype=self.dtype, device="cpu", _internal=_internal)

    def from_buffer(self, buffer, byte_order=None) -> TypedStorage:
        """A copy of the elements in a buffer; see `TypedStorage.from_buffer`."""
        return TypedStorage.from_buffer(buffer, byte_order, dtype=self.dtype)

    def from_file(self, filename, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage whose memory is a file; see `TypedStorage.from_file`."""
        return TypedStorage.from_file(filename, shared, size, self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is self.dtype and instance.device.type == "cpu"

    def __repr__(self) -> str:
        return f"<class 'torch.{self.__name__}'>"

    def __reduce__(self):
        return _legacy_type, (self.__name__,)


_LEGACY: dict[str, LegacyStorage] = {}


def legacy_types() -> dict[str, LegacyStorage]:
    """PyTorch's names for typed storages in main memory: `FloatStorage` and its like.

    >>> import tensorgrad as torch
    >>> torch.FloatStorage([1, 2]).tolist()
    [1.0, 2.0]
    """
    if not _LEGACY:
        _LEGACY.update({t.__name__: t for t in map(LegacyStorage, dtypes.ALL) if t.dtype not in dtypes.WIDE_UNSIGNED})
    return _LEGACY


def _dtype_to_storage_type_map() -> dict[dtypes.dtype, str]:
    return {t.dtype: name for name, t in legacy_types().items()}


def _storage_type_to_dtype_map() -> dict[str, dtypes.dtype]:
    return {name: t.dtype for name, t in legacy_types().items()}


def _legacy_type(name: str) -> LegacyStorage:
    return legacy_types()[name]


# --- untyped: the storages of floor 1 as sequences of bytes --------------------------------------------------------


def _new(cls: type[Storage], *args, device=None) -> Storage:
    """`UntypedStorage(n)`: n bytes, `UntypedStorage([1, 2])`: these."""
    return _memory("torch.UntypedStorage(): ", args, dtypes.uint8, device or getattr(cls, "device_type", "cpu"))


def _check_values(self: Storage) -> None:
    """Raises: NotImplementedError where there is no memory."""
    if self.device.type == "meta":
        raise NotImplementedError("Not available for 'meta' device type")


def _byteswap(self: Storage, dtype: dtypes.dtype) -> None:
    """Turns the bytes of every element of that dtype round (of complex numbers, those of both parts)."""
    size = dtype.itemsize // (2 if dtype.is_complex else 1)
    if size > 1:
        whole = self.nbytes() // size * size
        held = elements(self, dtypes.uint8)[:whole].view(-1, size)
        held.copy_(held.flip(1))


def _as_elements(dtype: dtypes.dtype):
    """A method that makes a typed storage with the bytes, one by one, as its elements."""

    def method(self: Storage) -> TypedStorage:
        return TypedStorage(wrap_storage=self, dtype=dtypes.uint8, _internal=True).to_dtype(dtype)

    method.__doc__ = f"A typed storage with the bytes, one by one, as {dtype}."
    return method


def _from_buffer(buffer, byte_order=None, *, dtype: dtypes.dtype) -> Storage:
    """A copy of the bytes of a buffer, in this machine's order."""
    if dtype.itemsize > 1 and byte_order is None:
        raise RuntimeError(f"from_buffer: elements of {dtype.itemsize} bytes need a byte_order")
    if dtype.itemsize > 1 and byte_order not in ("native", "little", "big"):
        raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
    held = np.frombuffer(buffer, np.uint8)
    if held.size % dtype.itemsize:
        raise ValueError(f"buffer size ({held.size}) must be a multiple of element size ({dtype.itemsize})")
    held = held.copy()
    if dtype.itemsize > 1 and byte_order not in ("native", sys.byteorder):
        parts = np.dtype(f"u{dtype.itemsize // (2 if dtype.is_complex else 1)}")
        held.view(parts).byteswap(inplace=True)
    return storage_class(devices.CPU).of(held.view(dtype.numpy))


def _resize_(self: Storage, size: int) -> Storage:
    """Makes the memory that many bytes long; what was there stays as far as it fits.

    Raises: RuntimeError where a tensor or array has this memory: it would keep the old one.
    """
    if size == self.nbytes():
        return self
    if self.device.type == "meta":  # no memory moves
        self.array = self.strided((size,), (1,), 0, np.dtype("uint8"))
        return self
    if not _resizable(self):
        raise RuntimeError("Trying to resize storage that is not resizable: tensors or arrays have its memory")
    old, device = elements(self, dtypes.uint8), self.device
    grown = self.empty((size,), dtypes.uint8.numpy, device)
    kept = min(size, old.numel())
    share(grown, None)[:kept].copy_(old[:kept])
    self.array = grown
    return self


def _deepcopy(self: Storage, memo: dict) -> Storage:
    """A copy of the memory; the one that `memo` has of it."""
    if id(self) not in memo:
        memo[id(self)] = _clone(self)
    return memo[id(self)]


def _iter(self: Storage) -> Iterator[int]:
    return iter(_tolist(self))


def _type(self: Storage) -> str:
    """PyTorch's name of untyped storages."""
    prefix = "torch.cuda." if self.device.type == "cuda" else "torch.storage."
    return f"{prefix}UntypedStorage"


def _get_device(self: Storage) -> int:
    """The index of the device; -1 for main memory."""
    return -1 if self.device.index is None else self.device.index


def _resizable(self: Storage) -> bool:
    """Whether `resize_` works: unless a tensor or array has the memory."""
    return sys.getrefcount(self.array) <= 2


def _clone(self: Storage) -> Storage:
    """A copy of the memory."""
    return elements(self, dtypes.uint8).clone()._storage


def _getitem(self: Storage, index):
    """One byte; for a slice, a storage that shares these bytes."""
    _check_values(self)
    found = elements(self, dtypes.uint8)[index]
    return self.of(found._array) if isinstance(index, slice) else found.item()


def _setitem(self: Storage, index, value) -> None:
    elements(self, dtypes.uint8)[index] = value


def _untyped(self: Storage) -> Storage:
    """Itself: it has no dtype."""
    return self


def _fill_(self: Storage, value) -> Storage:
    """Sets every byte."""
    elements(self, dtypes.uint8).fill_(value)
    return self


def _copy_(self: Storage, source: Storage, non_blocking: bool = False) -> Storage:
    """Overwrites the bytes with those of another storage. Raises: RuntimeError for one of another size."""
    if self.nbytes() != source.nbytes():
        raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
    elements(self, dtypes.uint8).copy_(elements(source, dtypes.uint8))
    return self


def _tolist(self: Storage) -> list[int]:
    """The bytes as numbers. Raises: NotImplementedError for a storage on the meta device."""
    if not self.nbytes():
        return []
    _check_values(self)
    return elements(self, dtypes.uint8).tolist()


def _element_size(self: Storage) -> int:
    """The size of an element, which is a byte."""
    return 1


def _is_shared(self: Storage) -> bool:
    """Whether other processes see the memory."""
    return self.device.type == "cuda"


def _to(self: Storage, *, device, non_blocking: bool = False) -> Storage:
    """The memory on another device; itself if it is there."""
    here = elements(self, dtypes.uint8)
    there = here.to(device=device, non_blocking=non_blocking)
    return self if there is here else there._storage


def _cpu(self: Storage) -> Storage:
    """The memory in main memory."""
    return _to(self, device="cpu")


def _cuda(self: Storage, device=None, non_blocking: bool = False) -> Storage:
    """The memory on a CUDA device (the current one unless `device` names another)."""
    return _to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


def _is_cuda(self: Storage) -> bool:
    """Whether the memory is on a CUDA device."""
    return self.device.type == "cuda"


def _pin_memory(self: Storage, device=None) -> Storage:
    """A copy that is locked in place for fast copies to a GPU; itself if it is. Raises: TypeError beside the CPU."""
    if self.device.type != "cpu":
        raise TypeError(f"cannot pin '{_type(self)}' only CPU memory can be pinned")
    here = elements(self, dtypes.uint8)
    pinned = here.pin_memory()
    return self if pinned is here else pinned._storage


def _is_pinned(self: Storage) -> bool:
    """Whether the memory is locked in place for fast copies to a GPU."""
    return elements(self, dtypes.uint8).is_pinned()


def _repr(self: Storage) -> str:
    lines = "".join(f" {value}\n" for value in _tolist(self)) if self.device.type != "meta" else "...\n"
    return f"{lines}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


for _name, _method in {
    "__copy__": _clone, "__deepcopy__": _deepcopy, "__getitem__": _getitem, "__iter__": _iter,
    "__len__": Storage.nbytes, "__new__": staticmethod(_new), "__repr__": _repr, "__setitem__": _setitem,
    "_cdata": property(id), "byteswap": _byteswap, "clone": _clone, "copy_": _copy_, "cpu": _cpu, "cuda": _cuda,
    "element_size": _element_size, "fill_": _fill_, "from_buffer": staticmethod(_from_buffer),
    "get_device": _get_device, "is_cuda": property(_is_cuda), "is_pinned": _is_pinned, "is_shared": _is_shared,
    "pin_memory": _pin_memory, "resizable": _resizable, "resize_": _resize_, "to": _to, "tolist": _tolist,
    "type": _type, "untyped": _untyped,
}.items():  # fmt: skip
    setattr(Storage, _name, _method)
for _name, _dtype in CASTS.items():
    setattr(Storage, _name, _as_elements(_dtype))
