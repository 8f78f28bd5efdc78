"""Storages as sequences: of bytes (`untyped_storage()`), and in PyTorch's older fashion of elements (`storage()`)."""

from __future__ import annotations

from collections.abc import Iterator

from tensorgrad import devices, dtypes
from tensorgrad.storage.stubs import Storage
from tensorgrad.tensor import Tensor, share


def elements(storage: Storage, dtype: dtypes.dtype) -> Tensor:
    """All the memory as a vector of that dtype."""
    size = storage.nbytes() // dtype.itemsize
    return share(storage.strided((size,), (dtype.itemsize,), 0, dtype.numpy), storage)


class TypedStorage:
    """A storage as a sequence of numbers of one dtype: what `tensor.storage()` returns.

    >>> import tensorgrad as torch
    >>> memory = torch.arange(6.0).reshape(2, 3)[0].untyped_storage()
    >>> torch.TypedStorage(wrap_storage=memory, dtype=torch.float32).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    is_sparse = False

    def __init__(self, *, wrap_storage: Storage, dtype: dtypes.dtype):
        self._untyped, self.dtype = wrap_storage, dtype

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

    def type(self) -> str:
        """PyTorch's name of the kind of storage: `torch.FloatStorage`."""
        prefix = "torch." if self.device.type == "cpu" else f"torch.{self.device.type}."
        return f"{prefix}{dtypes.SPOKEN[self.dtype.name]}Storage"

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.dtype.itemsize

    __len__ = size

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
        """The elements as Python numbers."""
        return elements(self._untyped, self.dtype).tolist()

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def _check_index(self, index) -> None:
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
        if not isinstance(index, slice):
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
        return TypedStorage(wrap_storage=elements(self._untyped, self.dtype).to(dtype)._storage, dtype=dtype)

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=_clone(self._untyped), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        """The storage in main memory."""
        return self._moved("cpu")

    def cuda(self, device=None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a CUDA device."""
        return self._moved("cuda" if device is None else device)

    def _moved(self, device) -> TypedStorage:
        here = elements(self._untyped, self.dtype)
        there = here.to(device=device)
        return self if there is here else TypedStorage(wrap_storage=there._storage, dtype=self.dtype)

    def is_shared(self) -> bool:
        """Whether other processes see the memory."""
        return self.is_cuda

    def is_pinned(self) -> bool:
        """Whether the memory is locked in place for fast copies to a GPU."""
        return elements(self._untyped, self.dtype).is_pinned()

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


for _name, _dtype in {
    "bool": dtypes.bool, "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32,
    "long": dtypes.int64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "float": dtypes.float32,
    "double": dtypes.float64, "complex_float": dtypes.complex64, "complex_double": dtypes.complex128,
}.items():  # fmt: skip
    _caster(_name, _dtype)


# --- untyped: the storages of floor 1 as sequences of bytes --------------------------------------------------------

# They get no `__len__`: a storage without bytes would then be false, and the ops ask `memory or storage`.


def _clone(self: Storage) -> Storage:
    """A copy of the memory."""
    return elements(self, dtypes.uint8).clone()._storage


def _getitem(self: Storage, index):
    """One byte; for a slice, a storage that shares these bytes."""
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
    """The bytes as numbers."""
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
    """A copy that is locked in place for fast copies to a GPU; itself if it is."""
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
    "__getitem__": _getitem, "__repr__": _repr, "__setitem__": _setitem, "clone": _clone, "copy_": _copy_, "cpu": _cpu,
    "cuda": _cuda, "element_size": _element_size, "fill_": _fill_, "is_cuda": property(_is_cuda),
    "is_pinned": _is_pinned, "is_shared": _is_shared, "pin_memory": _pin_memory, "to": _to, "tolist": _tolist,
    "untyped": _untyped,
}.items():  # fmt: skip
    setattr(Storage, _name, _method)
