"""Storages as sequences: of bytes (`untyped_storage()`), and in PyTorch's older form of elements (`storage()`)."""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.dispatch.resizing import move
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import warn
from tensorgrad.ops.create import OVER_STORAGE, elements, resolve_device, tensor
from tensorgrad.storage.files import is_shared, mapped_file, shared_bytes
from tensorgrad.storage.stubs import Storage, storage_class
from tensorgrad.tensor import Tensor

_warning = {"always": False, "given": False}  # for typed storages


def warn_of_typed() -> None:
    """Emits PyTorch's warning: once per program, unless it is set to warn always."""
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
    """Returns new memory for a number of elements, or with the elements of a sequence; empty without arguments."""
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
    """A storage as a sequence of elements of one dtype: the result of `tensor.storage()`.

    `TypedStorage(n)` allocates n elements, `TypedStorage([1, 2])` contains these, and `wrap_storage=` wraps existing
    memory.

    Raises:
        RuntimeError, TypeError: If the arguments are anything else.

    >>> memory = torch.arange(6.0).reshape(2, 3)[0].untyped_storage()
    >>> torch.TypedStorage(wrap_storage=memory, dtype=torch.float32).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    is_sparse = False

    def __init__(self, *args, device=None, dtype=None, wrap_storage: Any = None, _internal: bool = False):
        called = "TypedStorage.__init__ received an invalid combination of arguments: "
        if not _internal:
            warn_of_typed()
        if wrap_storage is not None:
            if args or device is not None:
                raise RuntimeError(f"{called}'wrap_storage' can be combined only with 'dtype'")
            if dtype is None:
                raise RuntimeError(f"{called}Argument 'dtype' must be specified")
            if not isinstance(wrap_storage, UntypedStorage | Storage):
                raise TypeError(f"{called}Argument 'wrap_storage' must be UntypedStorage, not {type(wrap_storage)}")
        if dtype is not None and not isinstance(dtype, dtypes.dtype):
            raise TypeError(f"{called}Argument 'dtype' must be torch.dtype, not {type(dtype)}")
        self.dtype = dtype or dtypes.DEFAULT.floating
        self._storage: Storage = (
            _memory(called, args, self.dtype, device) if wrap_storage is None else memory_of(wrap_storage)
        )

    def untyped(self) -> UntypedStorage:
        """Returns the memory itself, as bytes."""
        return shown(self._storage)

    @property
    def device(self) -> devices.device:
        """The device of the memory."""
        return self._storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self.device.type == "cuda"

    def type(self, dtype=None, non_blocking: bool = False):
        """Returns PyTorch's name of the storage type, `torch.FloatStorage`; with `dtype`, the elements cast to it."""
        if dtype is not None:
            found: Any = legacy_types().get(dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype
            return self.to_dtype(getattr(found, "dtype", found))
        prefix = "torch." if self.device.type == "cpu" else f"torch.{self.device.type}."
        return f"{prefix}{scalar_type(self)}Storage"

    def pickle_storage_type(self) -> str:
        """Returns the name of the storage type in files: `FloatStorage`."""
        return f"{scalar_type(self)}Storage"

    def get_device(self) -> int:
        """Returns the index of the device, or -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def resizable(self) -> bool:
        """Returns whether `resize_` works: not if a tensor or array uses the memory."""
        return self.untyped().resizable()

    def resize_(self, size: int) -> None:
        """Resizes the memory to that many elements."""
        self.untyped().resize_(size * self.dtype.itemsize)

    _resize_ = resize_

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, *, dtype=None, device=None) -> TypedStorage:
        """Returns a copy of the elements in a buffer. `byte_order` is "native", "little" or "big".

        Raises:
            ValueError: If the byte order is unknown.
            RuntimeError: If the byte order is missing for elements of several bytes.
        """
        dtype = dtype or dtypes.DEFAULT.floating
        return cls(
            wrap_storage=UntypedStorage.from_buffer(buffer, byte_order, dtype=dtype), dtype=dtype, _internal=True
        )

    @classmethod
    def from_file(cls, filename, shared: bool = False, size: int = 0, dtype=None) -> TypedStorage:
        """Returns a storage backed by a memory-mapped file; see `torch.from_file`."""
        dtype = dtype or dtypes.DEFAULT.floating
        memory = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return cls(wrap_storage=memory, dtype=dtype, _internal=True)

    def __eq__(self, other) -> bool:
        """Returns whether both are the same memory with the same dtype."""
        return isinstance(other, TypedStorage) and other._storage is self._storage and other.dtype is self.dtype

    def __hash__(self) -> int:
        return hash((id(self._storage), self.dtype))

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> TypedStorage:
        return TypedStorage(wrap_storage=self.untyped().__deepcopy__(memo), dtype=self.dtype, _internal=True)

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return shown(self._storage)

    @property
    def _cdata(self) -> int:
        return id(self._storage)

    def size(self) -> int:
        """Returns the number of elements."""
        return self.nbytes() // self.dtype.itemsize

    _size = __len__ = size

    def nbytes(self) -> int:
        """Returns the number of bytes."""
        return self._storage.nbytes()

    def element_size(self) -> int:
        """Returns the size of one element in bytes."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        return self._storage.data_ptr()

    def tolist(self) -> list:
        """Returns the elements as Python numbers.

        Raises:
            NotImplementedError: If the storage is on the meta device.
        """
        if not self.nbytes():
            return []
        _check_values(self._storage)
        return elements(self._storage, self.dtype).tolist()

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def _check_index(self, index) -> None:
        _check_values(self._storage)
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -self.size() <= index < self.size():
            raise IndexError(f"index {index} out of range for storage of size {self.size()}")

    def __getitem__(self, index: int):
        self._check_index(index)
        return elements(self._storage, self.dtype)[index].item()

    def __setitem__(self, index, value) -> None:
        if not isinstance(index, slice) and self.device.type != "meta":
            self._check_index(index)
        elements(self._storage, self.dtype)[index] = value

    def fill_(self, value) -> TypedStorage:
        """Sets every element to `value`."""
        elements(self._storage, self.dtype).fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Overwrites the bytes with those of another storage.

        Raises:
            RuntimeError: If the sizes differ.
        """
        self.untyped().copy_(source.untyped())
        return self

    def to_dtype(self, dtype: dtypes.dtype) -> TypedStorage:
        """Returns the elements in another dtype, in new memory; itself if they already have it."""
        if dtype is self.dtype:
            return self
        return TypedStorage(
            wrap_storage=elements(self._storage, self.dtype).to(dtype)._storage, dtype=dtype, _internal=True
        )

    def clone(self) -> TypedStorage:
        """Returns a copy."""
        return TypedStorage(wrap_storage=self.untyped().clone(), dtype=self.dtype, _internal=True)

    def cpu(self) -> TypedStorage:
        """Returns the storage in main memory."""
        return self._moved("cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> TypedStorage:
        """Returns the storage on a CUDA device."""
        return self._moved("cuda" if device is None else device)

    def _moved(self, device) -> TypedStorage:
        here = elements(self._storage, self.dtype)
        there = here.to(device=device)
        return self if there is here else TypedStorage(wrap_storage=there._storage, dtype=self.dtype, _internal=True)

    def is_shared(self) -> bool:
        """Returns whether other processes can access the memory."""
        return self.untyped().is_shared()

    def share_memory_(self) -> TypedStorage:
        """Would share the memory with other processes; see `Tensor.share_memory_`."""
        self.untyped().share_memory_()
        return self

    def pin_memory(self, device=None) -> TypedStorage:
        """Returns a page-locked copy for fast copies to a GPU.

        Raises:
            TypeError: If the storage is not on the CPU.
        """
        return TypedStorage(wrap_storage=self.untyped().pin_memory(device), dtype=self.dtype, _internal=True)

    def _share_fd_cpu_(self):
        return self.untyped()._share_fd_cpu_()

    def _share_filename_cpu_(self):
        return self.untyped()._share_filename_cpu_()

    def _write_file(self, *args):
        return self.untyped()._write_file(*args)

    def is_pinned(self) -> bool:
        """Returns whether the memory is page-locked for fast copies to a GPU."""
        return elements(self._storage, self.dtype).is_pinned()

    def _get_legacy_storage_class(self) -> LegacyStorage | None:
        return legacy_types().get(self.pickle_storage_type()) if self.device.type == "cpu" else None

    def __repr__(self) -> str:
        lines = "\n".join(f" {value}" for value in self.tolist()) if self.device.type != "meta" else "..."
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}"
        return f"{lines}\n[{kind}]"


def _over_typed(data: TypedStorage, dtype: dtypes.dtype | None) -> Tensor:
    dtype = dtype or dtypes.DEFAULT.floating
    if data.dtype is not dtype:
        raise RuntimeError(
            f"Expected a Storage of type {scalar_type(dtype)} or an UntypedStorage, but got {scalar_type(data)}"
        )
    return elements(data._storage, dtype)


OVER_STORAGE[TypedStorage] = _over_typed


def _caster(name: str, dtype: dtypes.dtype) -> None:
    def method(self: TypedStorage) -> TypedStorage:
        return self.to_dtype(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Returns the elements as {dtype}, in new memory; itself if they already have that dtype."
    setattr(TypedStorage, name, method)


CASTS = {
    "bool": dtypes.bool, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "float": dtypes.float32,
    "double": dtypes.float64, "complex_float": dtypes.complex64, "complex_double": dtypes.complex128,
}  # fmt: skip
for _name, _dtype in CASTS.items():
    _caster(_name, _dtype)


class LegacyStorage:
    """One of the names `torch.FloatStorage`, ...: constructs typed storages of its dtype, and is their type."""

    def __init__(self, dtype: dtypes.dtype):
        self.dtype = dtype
        self.__name__ = self.__qualname__ = f"{scalar_type(dtype)}Storage"
        self.__module__ = "torch"

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def __call__(self, *args, wrap_storage: Any = None, _internal=False, **options) -> TypedStorage:
        """Returns a storage for a number of elements, with the elements of a sequence, or over existing memory.

        Raises:
            RuntimeError: If `dtype` or `device` is given, which the name implies.
            TypeError: If other arguments are given.
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
        """Returns a copy of the elements in a buffer; see `TypedStorage.from_buffer`."""
        return TypedStorage.from_buffer(buffer, byte_order, dtype=self.dtype)

    def from_file(self, filename, shared: bool = False, size: int = 0) -> TypedStorage:
        """Returns a storage backed by a memory-mapped file; see `TypedStorage.from_file`."""
        return TypedStorage.from_file(filename, shared, size, self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is self.dtype and instance.device.type == "cpu"

    def __repr__(self) -> str:
        return f"<class 'torch.{self.__name__}'>"

    def __reduce__(self):
        return _legacy_type, (self.__name__,)


_LEGACY: dict[str, LegacyStorage] = {}


def legacy_types() -> dict[str, LegacyStorage]:
    """Returns PyTorch's names for typed storages in main memory, such as `FloatStorage`.

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


# --- untyped: bytes -------------------------------------------------------------------------------------------------


def shown(storage: Storage) -> UntypedStorage:
    """Returns the memory as users see it: the same object for as long as it is referenced, for any device."""
    known = getattr(storage, "shown", None)
    found = None if known is None else known()
    if found is None:
        found = object.__new__(UntypedStorage)
        found._storage, storage.shown = storage, weakref.ref(found)
    return found


def memory_of(storage) -> Storage:
    """Returns the memory behind a storage of either class, or the argument if it is already that memory."""
    return storage if isinstance(storage, Storage) else storage._storage


def _restored(made, arguments: tuple) -> UntypedStorage:
    return shown(made(*arguments))


class UntypedStorage:
    """Memory as a sequence of bytes, on any device: the result of `tensor.untyped_storage()`.

    `UntypedStorage(n)` allocates n bytes, and `UntypedStorage([1, 2])` contains these.

    >>> torch.tensor([1, 2], dtype=torch.int16).untyped_storage().tolist()
    [1, 0, 2, 0]
    """

    is_sparse = is_hpu = False
    filename = None
    _storage: Storage

    def __new__(cls, *args, device=None) -> UntypedStorage:
        storage = _memory("torch.UntypedStorage(): ", args, dtypes.uint8, device or "cpu")
        made = object.__new__(cls)
        made._storage, storage.shown = storage, weakref.ref(made)
        return made

    def __init__(self, *args, device=None):
        pass

    @property
    def device(self) -> devices.device:
        """The device of the memory."""
        return self._storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def _cdata(self) -> int:
        return id(self._storage)

    def nbytes(self) -> int:
        """Returns the size of the memory in bytes."""
        return self._storage.nbytes()

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Returns the address of the first byte; 0 if the device has no addresses."""
        return self._storage.data_ptr()

    def element_size(self) -> int:
        """Returns the size of an element: one byte."""
        return 1

    def get_device(self) -> int:
        """Returns the index of the device, or -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def type(self) -> str:
        """Returns PyTorch's name of untyped storages."""
        prefix = "torch.cuda." if self.is_cuda else "torch.storage."
        return f"{prefix}UntypedStorage"

    def untyped(self) -> UntypedStorage:
        """Returns itself: it has no dtype."""
        return self

    def new(self) -> UntypedStorage:
        """Returns an empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def _bytes(self) -> Tensor:
        storage = self._storage
        return elements(storage.of(storage.array), dtypes.uint8)  # writes to bytes are not detected, as in PyTorch

    # --- values ---

    def tolist(self) -> list[int]:
        """Returns the bytes as Python numbers.

        Raises:
            NotImplementedError: If the storage is on the meta device.
        """
        if not self.nbytes():
            return []
        _check_values(self._storage)
        return self._bytes().tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index):
        """Returns one byte or, for a slice, a storage that shares these bytes."""
        _check_values(self._storage)
        found = self._bytes()[index]
        return shown(self._storage.of(found._array)) if isinstance(index, slice) else found.item()

    def __setitem__(self, index, value) -> None:
        self._bytes()[index] = value

    def fill_(self, value) -> UntypedStorage:
        """Sets every byte to `value`."""
        self._bytes().fill_(value)
        return self

    def copy_(self, source, non_blocking: bool = False) -> UntypedStorage:
        """Overwrites the bytes with those of another storage.

        Raises:
            RuntimeError: If the sizes differ.
        """
        have, given = self.nbytes(), source.nbytes()
        if have != given:
            raise RuntimeError(f"size does not match, self was {have} bytes but src was {given} bytes")
        self._bytes().copy_(elements(memory_of(source), dtypes.uint8))
        return self

    def byteswap(self, dtype: dtypes.dtype) -> None:
        """Reverses the bytes of every element of that dtype (of complex numbers, those of both parts)."""
        size = dtype.itemsize // (2 if dtype.is_complex else 1)
        if size > 1:
            whole = self.nbytes() // size * size
            rows = self._bytes()[:whole].view(-1, size)
            rows.copy_(rows.flip(1))

    # --- other memory ---

    def clone(self) -> UntypedStorage:
        """Returns a copy of the memory."""
        return shown(self._bytes().clone()._storage)

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> UntypedStorage:
        """Returns a copy of the memory, or the copy that `memo` already has."""
        key = id(self._storage)
        if key not in memo:
            memo[key] = self.clone()._storage
            memo.setdefault(id(memo), []).append(self._storage)  # keep it alive while its id is a key
        return shown(memo[key])

    def __reduce__(self):
        return _restored, self._storage.__reduce__()

    def resizable(self) -> bool:
        """Returns whether `resize_` works: not if a tensor or array uses the memory."""
        return sys.getrefcount(self._storage.array) <= 2

    def resize_(self, size: int) -> UntypedStorage:
        """Resizes the memory to that many bytes; the existing content is kept as far as it fits.

        Where it grows, the tensors over it move with it.

        Raises:
            RuntimeError: If it would become smaller, and a tensor or array uses it.
        """
        storage = self._storage
        held = storage.nbytes()
        if size == held:
            return self
        if self.device.type == "meta":  # there is no memory to move
            storage.array = storage.strided((size,), (1,), 0, np.dtype("uint8"))
            return self
        if size < held and not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable: tensors or arrays use its memory")
        move(storage, storage.empty((size,), dtypes.uint8.numpy, self.device), min(size, held))
        return self

    def to(self, *, device, non_blocking: bool = False) -> UntypedStorage:
        """Returns the memory on another device; itself if it is already there."""
        here = self._bytes()
        there = here.to(device=device, non_blocking=non_blocking)
        return self if there is here else shown(there._storage)

    def cpu(self) -> UntypedStorage:
        """Returns the storage in main memory."""
        return self.to(device="cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> UntypedStorage:
        """Returns the storage on a CUDA device: `device`, or the current one if it is not given."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device=None) -> UntypedStorage:
        """Returns a page-locked copy for fast copies to a GPU; itself if it already is page-locked.

        Raises:
            TypeError: If the storage is not on the CPU.
        """
        if self.device.type != "cpu":
            raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
        here = self._bytes()
        pinned = here.pin_memory()
        return self if pinned is here else shown(pinned._storage)

    def is_pinned(self, device=None) -> bool:
        """Returns whether the memory is page-locked for fast copies to a GPU."""
        return self._bytes().is_pinned()

    # --- files and other processes ---

    @staticmethod
    def from_buffer(buffer, byte_order=None, *, dtype: dtypes.dtype) -> UntypedStorage:
        """Returns a copy of the bytes of a buffer, in this machine's byte order."""
        if dtype.itemsize > 1 and byte_order is None:
            raise RuntimeError(f"from_buffer: elements of {dtype.itemsize} bytes need a byte_order")
        if dtype.itemsize > 1 and byte_order not in ("native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        data = np.frombuffer(buffer, np.uint8)
        if data.size % dtype.itemsize:
            raise ValueError(f"buffer size ({data.size}) must be a multiple of element size ({dtype.itemsize})")
        data = data.copy()
        if dtype.itemsize > 1 and byte_order not in ("native", sys.byteorder):
            parts = np.dtype(f"u{dtype.itemsize // (2 if dtype.is_complex else 1)}")
            data.view(parts).byteswap(inplace=True)
        return shown(storage_class(devices.CPU).of(data.view(dtype.numpy)))

    @staticmethod
    def from_file(filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """Returns a storage backed by a memory-mapped file; see `torch.from_file`."""
        data = mapped_file(str(filename), operator.index(nbytes), bool(shared))
        return shown(storage_class(devices.CPU).of(data))

    def _write_file(self, file, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """Writes the bytes, preceded by the number of elements if `save_size`, as in old checkpoints."""
        storage = self._storage
        data = storage.to_host(storage.strided((self.nbytes(),), (1,), 0, np.dtype("uint8")))
        if save_size:
            file.write((self.nbytes() // element_size).to_bytes(8, "little"))
        file.write(np.ascontiguousarray(data))

    def is_shared(self) -> bool:
        """Returns whether other processes can access the memory."""
        return self.is_cuda or is_shared(self._storage.array)

    def share_memory_(self) -> UntypedStorage:
        """Moves the memory, and the tensors over it, to where forked processes share it; on a GPU it already is.

        NumPy arrays over the old memory keep that.

        Raises:
            RuntimeError: On devices other than the CPU and GPUs.
            NotImplementedError: On systems whose processes cannot be forked.
        """
        if self.device.type == "cpu":
            if not self.is_shared():
                move(self._storage, shared_bytes(self.nbytes()), self.nbytes())
            return self
        return self if self.is_cuda else self._share("_share_fd_")

    def _share_fd_cpu_(self):
        return self._share("_share_fd_")

    def _share_filename_cpu_(self):
        return self._share("_share_filename_")

    def _share(self, name: str):
        if self.device.type != "cpu":
            raise RuntimeError(f"{name}: only available on CPU")
        raise NotImplementedError(f"{name}: memory has no name that other processes could open; use share_memory_()")

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist()) if self.device.type != "meta" else "...\n"
        return f"{lines}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


def _check_values(storage: Storage) -> None:
    """Raises: NotImplementedError if there is no memory."""
    if storage.device.type == "meta":
        raise NotImplementedError("Not available for 'meta' device type")


OVER_STORAGE[UntypedStorage] = lambda data, dtype: elements(data._storage, dtype or dtypes.int64)


def _as_elements(name: str, dtype: dtypes.dtype) -> None:
    """Declares a method that makes a typed storage whose elements are the bytes, one by one."""

    def method(self: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=self, dtype=dtypes.uint8, _internal=True).to_dtype(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Returns a typed storage whose elements are the bytes, one by one, as {dtype}."
    setattr(UntypedStorage, name, method)


for _name, _dtype in CASTS.items():
    _as_elements(_name, _dtype)
