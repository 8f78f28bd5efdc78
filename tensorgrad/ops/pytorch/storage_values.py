"""Storages as sequences: of bytes (`untyped_storage()`), and in PyTorch's older fashion of elements (`storage()`)."""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import warn
from tensorgrad.ops.create import OVER_STORAGE, elements, resolve_device, tensor
from tensorgrad.storage.files import mapped_file
from tensorgrad.storage.stubs import Storage, storage_class
from tensorgrad.tensor import Tensor, share

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

    def __init__(self, *args, device=None, dtype=None, wrap_storage: Any = None, _internal: bool = False):
        called = "TypedStorage.__init__ received an invalid combination of arguments: "
        if not _internal:
            warn_of_typed()
        if wrap_storage is not None:
            if args or device is not None:
                raise RuntimeError(f"{called}'wrap_storage' stands alone, beside 'dtype'")
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
        """The memory itself, as bytes."""
        return shown(self._storage)

    @property
    def device(self) -> devices.device:
        """Where the memory is."""
        return self._storage.device

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
        return f"{prefix}{scalar_type(self)}Storage"

    def pickle_storage_type(self) -> str:
        """The name of the kind of storage in files: `FloatStorage`."""
        return f"{scalar_type(self)}Storage"

    def get_device(self) -> int:
        """The index of the device; -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def resizable(self) -> bool:
        """Whether `resize_` works: unless a tensor or array has the memory."""
        return self.untyped().resizable()

    def resize_(self, size: int) -> None:
        """Makes room for that many elements."""
        self.untyped().resize_(size * self.dtype.itemsize)

    _resize_ = resize_

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, *, dtype=None, device=None) -> TypedStorage:
        """A copy of the elements in a buffer. `byte_order` is "native", "little" or "big".

        Raises: ValueError for another order, RuntimeError for none where an element has several bytes.
        """
        dtype = dtype or dtypes.DEFAULT.floating
        return cls(
            wrap_storage=UntypedStorage.from_buffer(buffer, byte_order, dtype=dtype), dtype=dtype, _internal=True
        )

    @classmethod
    def from_file(cls, filename, shared: bool = False, size: int = 0, dtype=None) -> TypedStorage:
        """A storage whose memory is a file, read as it is needed; see `torch.from_file`."""
        dtype = dtype or dtypes.DEFAULT.floating
        memory = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return cls(wrap_storage=memory, dtype=dtype, _internal=True)

    def __eq__(self, other) -> bool:
        """Whether both are the same memory, element for element of the same dtype."""
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
        """The number of elements."""
        return self.nbytes() // self.dtype.itemsize

    _size = __len__ = size

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._storage.nbytes()

    def element_size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._storage.data_ptr()

    def tolist(self) -> list:
        """The elements as Python numbers. Raises: NotImplementedError for a storage on the meta device."""
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
        """Sets every element."""
        elements(self._storage, self.dtype).fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Overwrites the bytes with those of another storage. Raises: RuntimeError for one of another size."""
        self.untyped().copy_(source.untyped())
        return self

    def to_dtype(self, dtype: dtypes.dtype) -> TypedStorage:
        """The elements in another dtype, in memory of their own; itself if they have it."""
        if dtype is self.dtype:
            return self
        return TypedStorage(
            wrap_storage=elements(self._storage, self.dtype).to(dtype)._storage, dtype=dtype, _internal=True
        )

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=self.untyped().clone(), dtype=self.dtype, _internal=True)

    def cpu(self) -> TypedStorage:
        """The storage in main memory."""
        return self._moved("cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a CUDA device."""
        return self._moved("cuda" if device is None else device)

    def _moved(self, device) -> TypedStorage:
        here = elements(self._storage, self.dtype)
        there = here.to(device=device)
        return self if there is here else TypedStorage(wrap_storage=there._storage, dtype=self.dtype, _internal=True)

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return self.is_cuda

    def share_memory_(self) -> TypedStorage:
        """Would let other processes see the memory; see `Tensor.share_memory_`."""
        self.untyped().share_memory_()
        return self

    def pin_memory(self, device=None) -> TypedStorage:
        """A copy that is locked in place for fast copies to a GPU. Raises: TypeError beside the CPU."""
        return TypedStorage(wrap_storage=self.untyped().pin_memory(device), dtype=self.dtype, _internal=True)

    def _share_fd_cpu_(self):
        return self.untyped()._share_fd_cpu_()

    def _share_filename_cpu_(self):
        return self.untyped()._share_filename_cpu_()

    def _write_file(self, *args):
        return self.untyped()._write_file(*args)

    def is_pinned(self) -> bool:
        """Whether the memory is locked in place for fast copies to a GPU."""
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
        self.__name__ = self.__qualname__ = f"{scalar_type(dtype)}Storage"
        self.__module__ = "torch"

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def __call__(self, *args, wrap_storage: Any = None, _internal=False, **options) -> TypedStorage:
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


# --- untyped: bytes -------------------------------------------------------------------------------------------------


def shown(storage: Storage) -> UntypedStorage:
    """The memory as programs see it: one object as long as it is held, for any device."""
    known = getattr(storage, "shown", None)
    found = None if known is None else known()
    if found is None:
        found = object.__new__(UntypedStorage)
        found._storage, storage.shown = storage, weakref.ref(found)
    return found


def memory_of(storage) -> Storage:
    """The memory behind a storage of either kind; itself if it is that."""
    return storage if isinstance(storage, Storage) else storage._storage


def _restored(made, arguments: tuple) -> UntypedStorage:
    return shown(made(*arguments))


class UntypedStorage:
    """Memory as a sequence of bytes, on any device: what `tensor.untyped_storage()` returns.

    `UntypedStorage(n)` is new memory of n bytes, and `UntypedStorage([1, 2])` holds these.

    >>> import tensorgrad as torch
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
        """Where the memory is."""
        return self._storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def _cdata(self) -> int:
        return id(self._storage)

    def nbytes(self) -> int:
        """The size of the memory, in bytes."""
        return self._storage.nbytes()

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where a device has none to show."""
        return self._storage.data_ptr()

    def element_size(self) -> int:
        """The size of an element, which is a byte."""
        return 1

    def get_device(self) -> int:
        """The index of the device; -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def type(self) -> str:
        """PyTorch's name of untyped storages."""
        prefix = "torch.cuda." if self.is_cuda else "torch.storage."
        return f"{prefix}UntypedStorage"

    def untyped(self) -> UntypedStorage:
        """Itself: it has no dtype."""
        return self

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def _bytes(self) -> Tensor:
        return elements(self._storage, dtypes.uint8)

    # --- values ---

    def tolist(self) -> list[int]:
        """The bytes as numbers. Raises: NotImplementedError for a storage on the meta device."""
        if not self.nbytes():
            return []
        _check_values(self._storage)
        return self._bytes().tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index):
        """One byte; for a slice, a storage that shares these bytes."""
        _check_values(self._storage)
        found = self._bytes()[index]
        return shown(self._storage.of(found._array)) if isinstance(index, slice) else found.item()

    def __setitem__(self, index, value) -> None:
        self._bytes()[index] = value

    def fill_(self, value) -> UntypedStorage:
        """Sets every byte."""
        self._bytes().fill_(value)
        return self

    def copy_(self, source, non_blocking: bool = False) -> UntypedStorage:
        """Overwrites the bytes with those of another storage. Raises: RuntimeError for one of another size."""
        have, given = self.nbytes(), source.nbytes()
        if have != given:
            raise RuntimeError(f"size does not match, self was {have} bytes but src was {given} bytes")
        self._bytes().copy_(elements(memory_of(source), dtypes.uint8))
        return self

    def byteswap(self, dtype: dtypes.dtype) -> None:
        """Turns the bytes of every element of that dtype round (of complex numbers, those of both parts)."""
        size = dtype.itemsize // (2 if dtype.is_complex else 1)
        if size > 1:
            whole = self.nbytes() // size * size
            held = self._bytes()[:whole].view(-1, size)
            held.copy_(held.flip(1))

    # --- other memory ---

    def clone(self) -> UntypedStorage:
        """A copy of the memory."""
        return shown(self._bytes().clone()._storage)

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> UntypedStorage:
        """A copy of the memory; the one that `memo` has of it."""
        key = id(self._storage)
        if key not in memo:
            memo[key] = self.clone()._storage
            memo.setdefault(id(memo), []).append(self._storage)  # keep it alive while its id is a key
        return shown(memo[key])

    def __reduce__(self):
        return _restored, self._storage.__reduce__()

    def resizable(self) -> bool:
        """Whether `resize_` works: unless a tensor or array has the memory."""
        return sys.getrefcount(self._storage.array) <= 2

    def resize_(self, size: int) -> UntypedStorage:
        """Makes the memory that many bytes long; what was there stays as far as it fits.

        Raises: RuntimeError where a tensor or array has this memory: it would keep the old one.
        """
        storage = self._storage
        if size == storage.nbytes():
            return self
        if self.device.type == "meta":  # no memory moves
            storage.array = storage.strided((size,), (1,), 0, np.dtype("uint8"))
            return self
        if not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable: tensors or arrays have its memory")
        old, device = self._bytes(), self.device
        grown = storage.empty((size,), dtypes.uint8.numpy, device)
        kept = min(size, old.numel())
        share(grown, None)[:kept].copy_(old[:kept])
        storage.array = grown
        return self

    def to(self, *, device, non_blocking: bool = False) -> UntypedStorage:
        """The memory on another device; itself if it is there."""
        here = self._bytes()
        there = here.to(device=device, non_blocking=non_blocking)
        return self if there is here else shown(there._storage)

    def cpu(self) -> UntypedStorage:
        """The memory in main memory."""
        return self.to(device="cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> UntypedStorage:
        """The memory on a CUDA device (the current one unless `device` names another)."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device=None) -> UntypedStorage:
        """A copy that is locked in place for fast copies to a GPU; itself if it is. Raises: TypeError beside the
        CPU."""
        if self.device.type != "cpu":
            raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
        here = self._bytes()
        pinned = here.pin_memory()
        return self if pinned is here else shown(pinned._storage)

    def is_pinned(self, device=None) -> bool:
        """Whether the memory is locked in place for fast copies to a GPU."""
        return self._bytes().is_pinned()

    # --- files and other processes ---

    @staticmethod
    def from_buffer(buffer, byte_order=None, *, dtype: dtypes.dtype) -> UntypedStorage:
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
        return shown(storage_class(devices.CPU).of(held.view(dtype.numpy)))

    @staticmethod
    def from_file(filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A storage whose memory is a file, read as it is needed; see `torch.from_file`."""
        held = mapped_file(str(filename), operator.index(nbytes), bool(shared))
        return shown(storage_class(devices.CPU).of(held))

    def _write_file(self, file, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """Writes the bytes, after the number of elements if `save_size`, as old checkpoints have them."""
        storage = self._storage
        held = storage.to_host(storage.strided((self.nbytes(),), (1,), 0, np.dtype("uint8")))
        if save_size:
            file.write((self.nbytes() // element_size).to_bytes(8, "little"))
        file.write(np.ascontiguousarray(held))

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return self.is_cuda

    def share_memory_(self) -> UntypedStorage:
        """Would let other processes see the memory; on a GPU they can.

        Raises: RuntimeError on other devices than the CPU and GPUs; NotImplementedError on the CPU, where arrays have
            the memory, which therefore cannot move to another place.
        """
        return self if self.is_cuda else self._share("_share_fd_")

    def _share_fd_cpu_(self):
        return self._share("_share_fd_")

    def _share_filename_cpu_(self):
        return self._share("_share_filename_")

    def _share(self, name: str):
        if self.device.type != "cpu":
            raise RuntimeError(f"{name}: only available on CPU")
        raise NotImplementedError("share_memory_: tensors cannot be shared between processes yet")

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist()) if self.device.type != "meta" else "...\n"
        return f"{lines}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


def _check_values(storage: Storage) -> None:
    """Raises: NotImplementedError where there is no memory."""
    if storage.device.type == "meta":
        raise NotImplementedError("Not available for 'meta' device type")


OVER_STORAGE[UntypedStorage] = lambda data, dtype: elements(data._storage, dtype or dtypes.int64)


def _as_elements(name: str, dtype: dtypes.dtype) -> None:
    """A method that makes a typed storage with the bytes, one by one, as its elements."""

    def method(self: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=self, dtype=dtypes.uint8, _internal=True).to_dtype(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"A typed storage with the bytes, one by one, as {dtype}."
    setattr(UntypedStorage, name, method)


for _name, _dtype in CASTS.items():
    _as_elements(_name, _dtype)
