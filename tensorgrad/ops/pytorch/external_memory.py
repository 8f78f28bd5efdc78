"""Tensors over external memory: buffers, files, other libraries' arrays, storages, and explicit strides."""

from __future__ import annotations

import array as buffers
import math
from operator import index as as_int

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.views import check_writable
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.resizing import move
from tensorgrad.dtypes import c_type, scalar_type
from tensorgrad.errors import MISSING, typename, warn
from tensorgrad.kernels.array import dlpack
from tensorgrad.ops.create import (
    as_tensor,
    elements,
    empty_strided,
    finish,
    from_numpy,
    reach,
    resolve_device,
    resolve_shape,
    strided,
)
from tensorgrad.ops.pytorch.storage_values import TypedStorage, UntypedStorage, legacy_types, shown, warn_of_typed
from tensorgrad.ops.shape import ints, listed
from tensorgrad.overriding import function_classes
from tensorgrad.rows.switches import DISPATCH
from tensorgrad.storage.files import is_shared as shared
from tensorgrad.storage.files import mapped_file
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.storage.stubs import Storage, storage_class
from tensorgrad.tensor import Tensor, reshape_in_place, wrap

# --- explicit strides ----------------------------------------------------------------------------------------------


@composite("function")
def empty_permuted(
    size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns an uninitialized dense tensor with its dimensions in the memory order `physical_layout`, outermost first.

    Raises:
        RuntimeError: If `physical_layout` is not a permutation of the dimensions.

    >>> torch.empty_permuted((2, 3, 4), (0, 2, 1)).stride()
    (12, 1, 3)
    """
    size, order = resolve_shape((size,)), listed(physical_layout, "physical_layout")
    if len(size) != len(order):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(order)}"
        )
    for i, d in enumerate(order):
        if not 0 <= d < len(size):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {d} at index {i}).  NB:"
                " negative dims not currently supported; file an issue if you want it."
            )
    if len(set(order)) != len(order):
        raise RuntimeError("Duplicate dim not allowed")
    stride, step = [0] * len(size), 1
    for d in reversed(order):
        stride[d] = step
        step *= max(size[d], 1)
    return empty_strided(
        size, tuple(stride), dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
    )


@composite("method")
def new_empty_strided(
    self: Tensor, size, stride, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
) -> Tensor:
    """`torch.empty_strided` with this tensor's dtype and device unless others are given.

    >>> torch.ones(1, dtype=torch.float64).new_empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    return empty_strided(
        size, stride, dtype=dtype or self.dtype, device=self.device if device is None else device,
        requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


# --- buffers, files, other libraries -------------------------------------------------------------------------------


@composite("function")
def frombuffer(buffer, *, dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """Returns a vector that shares the memory of a `bytearray`, `array.array`, `memoryview` or any other buffer.

    Args:
        dtype: the dtype of the elements.
        count: the number of elements; all if negative.
        offset: the number of bytes to skip at the start.

    Raises:
        ValueError: If `buffer` is not a buffer or is empty, or `count` and `offset` do not fit into it.

    >>> torch.frombuffer(bytearray(b"ab"), dtype=torch.uint8)
    tensor([97, 98], dtype=torch.uint8)
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    total, size = view.nbytes, dtype.itemsize
    if not total or not count:
        raise ValueError(f"both buffer length ({total}) and count ({count}) must not be 0")
    if not 0 <= offset < total:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({total} bytes) minus 1"
        )
    if count > 0 and offset + count * size > total:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({total} bytes)"
        )
    if count < 0 and (total - offset) % size:
        raise ValueError(
            f"buffer length ({total - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({size})"
        )
    if view.readonly:
        warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. Here, writing to the "
            "tensor raises an error. You may want to copy the buffer to protect its data or make it "
            "writable before converting it to a tensor."
        )
    # As bytes first: NumPy's frombuffer rejects dtypes that are not its own.
    array = np.frombuffer(view, np.uint8, count * size if count > 0 else -1, offset).view(dtype.numpy)
    return finish(array, requires_grad, "cpu")


@composite("function")
def from_file(
    filename: str, shared: bool | None = None, size: int | None = 0, *, dtype=None, layout=None, device=None,
    pin_memory=False, requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns a vector backed by a memory-mapped file.

    Args:
        shared: whether writing to the tensor writes to the file, which is created or extended as needed; otherwise
            changes stay in this tensor.
        size: the number of elements.

    Raises:
        RuntimeError: If the file is missing or too short (unless `shared`).
        TypeError: If `filename` is not a string.

    >>> import tempfile, tensorgrad as torch
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = torch.from_file(file.name, shared=True, size=3).copy_(torch.tensor([1.0, 2.0, 3.0]))
    ...     torch.from_file(file.name, size=2)
    tensor([1., 2.])
    """
    if not isinstance(filename, str):
        raise TypeError(f"from_file(): argument 'filename' (position 1) must be str, not {type(filename).__name__}")
    dtype = dtype or dtypes.DEFAULT.floating
    mapped = mapped_file(filename, as_int(size or 0) * dtype.itemsize, bool(shared))
    return finish(mapped.view(dtype.numpy), requires_grad, device)


@composite("method")
def __array_wrap__(self: Tensor, array, context=None, return_scalar: bool = False) -> Tensor:
    """Converts the results of NumPy functions called on tensors: `np.sin(tensor)` is a tensor.

    As in PyTorch, booleans become uint8.
    """
    array = np.asarray(array)
    return from_numpy(array.astype(np.uint8) if array.dtype.kind == "b" else array)


@composite("method")
def __dlpack__(self: Tensor, **options):
    if options.get("stream") is not None and type(options["stream"]) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.is_cuda:
        _check_dlpack(self, options.setdefault("stream", -1))
    if self.dtype is dtypes.bfloat16:
        return dlpack.export_bfloat16(self._array, options)
    return self._array.__dlpack__(**options)


def _check_dlpack(self: Tensor, stream) -> None:
    """Raises: TypeError if `stream` is not the consumer's stream (-1: do not synchronize), BufferError if the tensor is
    not on the current GPU."""
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    current = self._storage.current_device().index
    if self.device.index != current:
        raise BufferError(
            f"Can't export tensors on a different CUDA device index. Expected: {self.device.index}. "
            f"Current device: {current}."
        )


def _cuda_array_interface(self: Tensor) -> dict:
    """The CUDA array interface, through which other GPU libraries (CuPy, Numba) share the tensor's memory.

    Raises: AttributeError if the tensor is not on a GPU, RuntimeError if it requires grad.

    >>> hasattr(torch.ones(2), "__cuda_array_interface__")
    False
    """
    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is required use "
            "tensor.cuda() to copy tensor to device memory."
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use "
            "var.detach() to get Variable that doesn't require grad."
        )
    array = self._array
    return {
        "typestr": "<V2" if self.dtype is dtypes.bfloat16 else array.dtype.str, "shape": tuple(array.shape),
        "strides": None if array.flags.c_contiguous else array.strides, "data": (self.data_ptr(), False), "version": 2,
    }  # fmt: skip


setattr(Tensor, "__cuda_array_interface__", property(_cuda_array_interface))  # noqa: B010


@composite("method")
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    return self._array.__dlpack_device__()


class _Writable:
    """Exposes an array's memory to NumPy as writable: a bare capsule does not say so, and NumPy assumes read-only."""

    def __init__(self, array: np.ndarray):
        self.owner, interface = array, array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


@composite("function")
def from_dlpack(ext_tensor, *, device=None, copy: bool | None = None) -> Tensor:
    """Returns a tensor that shares the memory of another library's array, or of a DLPack capsule.

    Args:
        copy: True always copies, False raises if a copy is needed, None copies only if needed.

    Raises:
        RuntimeError: If `ext_tensor` does not implement the DLPack protocol.

    >>> import numpy as np, tensorgrad as torch
    >>> array = np.arange(3)
    >>> torch.from_dlpack(array)[0] = 7
    >>> int(array[0])
    7
    """
    if not hasattr(ext_tensor, "__dlpack__") and type(ext_tensor).__name__ != "PyCapsule":
        raise RuntimeError(
            f"from_dlpack received an invalid capsule: expected a DLPack capsule or an object with __dlpack__, got "
            f"{type(ext_tensor).__name__}. Note that DLTensor capsules can be consumed only once, so you might have "
            "already constructed a tensor from it once."
        )
    source = dlpack.Relabelled(ext_tensor)
    if dlpack.device_of(ext_tensor)[0] in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        storage_class(devices.device("cuda"))  # raises if something is missing
        import cupy

        array = cupy.from_dlpack(source)
    else:
        array = np.from_dlpack(source)
        if type(ext_tensor).__name__ == "PyCapsule":
            array = np.asarray(_Writable(array))
    made = wrap(array.view(dtypes.bfloat16.numpy) if source.bfloat16 else array)
    moved = made if device is None else made.to(device=device)
    return moved.clone() if copy and moved is made else moved


@composite("function")
def to_dlpack(tensor: Tensor):
    """Returns a DLPack capsule of the tensor's memory, which another library may consume once.

    Raises:
        BufferError: If the tensor requires grad.

    >>> torch.from_dlpack(torch.to_dlpack(torch.ones(2)))
    tensor([1., 1.])
    """
    return tensor.__dlpack__()


@composite("function")
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad: bool | None = None) -> Tensor:
    """Converts `obj` to a tensor; `copy=True` always copies, `copy=False` raises if a copy is needed.

    A tensor that requires grad keeps doing so, with a warning, unless `requires_grad` is given. Other objects with a
    buffer (`bytes`, `array.array`, `memoryview`) are interpreted as elements of `dtype`, in the same memory.

    >>> torch.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    if isinstance(obj, UntypedStorage):
        obj, dtype = elements(obj._storage, dtype or dtypes.uint8), None
    elif isinstance(obj, bytes | bytearray | memoryview | buffers.array):
        obj = frombuffer(obj, dtype=dtype or dtypes.DEFAULT.floating)
    elif type(obj).__name__ == "PyCapsule":
        obj = from_dlpack(obj)
    shares = isinstance(obj, Tensor | np.ndarray)
    if copy is False and not shares:
        if isinstance(obj, np.generic):
            raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. ")
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    made = as_tensor(obj, None if copy is False else dtype, None if copy is False else device)
    if copy is False and device is not None and (wanted := resolve_device(device)) != made.device:
        raise ValueError(f"can't alias tensor from device '{made.device}' to '{wanted}'.")
    if copy is False and dtype is not None and dtype is not made.dtype:
        raise ValueError(f"can't alias tensor with dtype '{scalar_type(made)}' into dtype '{scalar_type(dtype)}'.")
    if copy and shares:
        made = made.clone()
    if isinstance(obj, Tensor) and obj.requires_grad and requires_grad is None:
        warn(
            "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass "
            "requires_grad=False explicitly to get the old behavior."
        )
        return made
    if not requires_grad:
        return made.detach() if made.requires_grad else made
    return made if made.requires_grad else made.requires_grad_()


@composite("method")
def untyped_storage(self: Tensor) -> UntypedStorage:
    """Returns the storage of the tensor, which its views share.

    >>> x = torch.zeros(2, 3)
    >>> x.untyped_storage().nbytes(), x[1].untyped_storage() is x.untyped_storage()
    (24, True)
    """
    return shown(self._storage)


@composite("method")
def storage(self: Tensor) -> TypedStorage:
    """Returns the storage as elements of the tensor's dtype (PyTorch's legacy form of `untyped_storage()`).

    >>> torch.tensor([[1.0, 2.0], [3.0, 4.0]])[1].storage().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    warn_of_typed()
    return TypedStorage(wrap_storage=self._storage, dtype=self.dtype, _internal=True)


@composite("method")
def _typed_storage(self: Tensor) -> TypedStorage:
    return TypedStorage(wrap_storage=self._storage, dtype=self.dtype, _internal=True)


@composite("method")
def storage_type(self: Tensor):
    """Returns PyTorch's class for the type of `storage()`.

    >>> torch.ones(2).storage_type()
    <class 'torch.FloatStorage'>
    """
    return legacy_types()[f"{scalar_type(self)}Storage"]


@composite("method")
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Returns whether both tensors are the same elements of the same memory, in the same order.

    >>> x = torch.ones(2)
    >>> x.is_set_to(x[:]), x.is_set_to(x.clone())
    (True, False)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}")
    a, b = self._array, tensor._array
    same = self._storage is tensor._storage and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    return same and self.storage_offset() == tensor.storage_offset()


class _Set(Function):
    """The graph node of a tensor that was set to other memory: no gradient flows through it."""

    @staticmethod
    def forward(ctx, input):
        return input.clone()

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("derivative for set_ is not implemented")


@composite("method")
def set_(self: Tensor, source=MISSING, storage_offset: int = MISSING, size=MISSING, stride=None) -> Tensor:
    """Makes this tensor refer to other memory: a tensor's, or a storage's from `storage_offset` on (in elements).

    Without `size`, the tensor covers all of the source; with `size` but no `stride`, it is dense in row-major order.
    Without a source it becomes empty. The storage grows if the tensor reaches beyond it.

    Raises:
        RuntimeError: If the dtype differs, or this is a leaf that requires grad.
        TypeError: For another source, and for an offset without a size or the other way around.

    >>> x, y = torch.zeros(2), torch.arange(6.0)
    >>> x.set_(y.untyped_storage(), 1, (2, 2), (2, 1))
    tensor([[1., 2.],
            [3., 4.]])
    """
    place = () if size is MISSING else (storage_offset, size, stride or ())
    asked = inplace.asked(set_, self, *(() if source is MISSING else (source, *place))) if DISPATCH else NotImplemented
    if asked is not NotImplemented:
        return asked
    _check_form(source, storage_offset, size, stride)
    tracked = inplace._recorded(self, (source,))
    if tracked:
        check_writable(self)
    self._storage.check_writable()
    if source is MISSING:
        array, memory = np.empty(0, self._array.dtype), None
        if not self.is_cpu:
            array = self._storage.empty((0,), self._array.dtype, self.device)
    else:
        array, memory = _source(self, source, storage_offset, size, stride)
    if array.shape != self._array.shape:
        reshape_in_place(self)
    version = self._storage.version
    if memory is not None and (memory.version is None) is not (version is None):
        memory = memory.__class__.of(memory.array, version)  # whether this is an inference tensor stays as it was
    self._array, self._memory = array, memory
    self._view = self._edge = None
    if tracked:
        marked = _Set.apply(self.detach().requires_grad_())
        self._edge, self._requires_grad = marked._edge, True
    else:
        self._requires_grad = self._requires_grad is True
    return self


def _check_form(source, storage_offset, size, stride) -> None:
    """Raises: TypeError unless these are arguments of `set_`: none, a source, or a source, an offset and a size."""
    placed = storage_offset is not MISSING or size is not MISSING or stride is not None
    if function_classes.overrides(source):  # which are not asked
        raise RuntimeError(f"not a storage '{type(source).__name__}'")
    fits = isinstance(source, Tensor | TypedStorage | UntypedStorage) or (source is MISSING and not placed)
    if placed:
        whole = hasattr(storage_offset, "__index__") and storage_offset.__class__ is not bool
        fits = fits and whole and isinstance(size, list | tuple) and isinstance(stride, list | tuple | None)
    if not fits:
        given = ", ".join(typename(v) for v in (source, storage_offset, size, stride or MISSING) if v is not MISSING)
        raise TypeError(
            f"set_() received an invalid combination of arguments - got ({given}), but expected nothing, a tensor or a "
            "storage, or one of these, an int (storage_offset), a tuple of ints (size), and perhaps another (stride)"
        )


def _source(self: Tensor, source, storage_offset, size, stride):
    """Returns the array and storage for `set_`."""
    if isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            names = (c_type(t) for t in (source, self))
            raise RuntimeError("Could not set tensor of type {} to a tensor of type {}".format(*names))
        if size is MISSING:
            return source._array, source._storage
        memory = source._storage
    elif isinstance(source, TypedStorage):
        if source.dtype is not self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {c_type(self)} or an UntypedStorage, but got type "
                f"{scalar_type(source)} for argument 1 'storage'"
            )
        memory = source._storage
    else:
        memory = source._storage
    dtype, offset = self._array.dtype, 0 if storage_offset is MISSING else as_int(storage_offset)
    size = (memory.nbytes() // dtype.itemsize,) if size is MISSING else ints(size)
    stride = tuple(math.prod(size[i + 1 :]) for i in range(len(size))) if stride is None else ints(stride)
    _make_room(memory, size, stride, offset, dtype.itemsize)
    return strided(memory, size, stride, offset, dtype), memory


def _make_room(memory: Storage, size: tuple, stride: tuple, offset: int, itemsize: int) -> None:
    """Grows the storage if the geometry needs more. Raises: RuntimeError for a geometry that cannot be."""
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if len(size) != len(stride):
        raise RuntimeError(f"unequal size length ({len(size)}) and stride length ({len(stride)})")
    if any(s < 0 for s in stride):
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}: strides must not "
            "be negative"
        )
    needed = (offset + reach(size, stride)) * itemsize if 0 not in size else 0
    if needed > memory.nbytes():
        move(memory, memory.empty((needed,), np.dtype("uint8"), memory.device), memory.nbytes())


# --- shared and pinned memory --------------------------------------------------------------------------------------


@composite("method")
def const_data_ptr(self: Tensor) -> int:
    """Returns the address of the first element, for reading.

    >>> x = torch.ones(2)
    >>> x[1:].const_data_ptr() - x.const_data_ptr()
    4
    """
    return self.data_ptr()


@composite("method")
def share_memory_(self: Tensor) -> Tensor:
    """Moves the tensor, and its views, to memory that forked processes share; a GPU tensor is returned unchanged.

    This process and those that it forks from now on see each other's writes. Where a tensor is pickled (by `spawn`, or
    in a queue), it is copied. NumPy arrays over the old memory keep that.

    Raises:
        NotImplementedError: On systems whose processes cannot be forked.
        RuntimeError: On the meta device.

    >>> torch.ones(2).share_memory_().is_shared()
    True
    """
    shown(self._storage).share_memory_()
    return self


@composite("method")
def is_shared(self: Tensor) -> bool:
    """Returns whether the memory is shared with other processes: after `share_memory_`, and on CUDA.

    >>> torch.ones(2).is_shared()
    False
    """
    return self.is_cuda or shared(self._storage.array)


@composite("method")
def is_pinned(self: Tensor, device=None) -> bool:
    """Returns whether the memory is page-locked for fast copies to an accelerator.

    >>> torch.ones(2).is_pinned()
    False
    """
    _deprecated_device("is_pinned", device)
    cuda = _cuda() if self.is_cpu else None
    array = self._array
    return cuda is not None and cuda.is_locked(array.values if isinstance(array, SparseArray) else array)


@composite("method")
def record_stream(self: Tensor, stream) -> None:
    """Marks the tensor as used by a stream other than the one it was made in.

    When the tensor is freed, its memory is not reused before that stream has finished the work queued so far.

    Raises:
        NotImplementedError: If the tensor is not on a GPU.

    >>> if torch.cuda.is_available():
    ...     torch.ones(2, device="cuda").record_stream(torch.cuda.current_stream())
    """
    if not self.is_cuda:
        raise NotImplementedError(
            f"Could not run 'aten::record_stream' with arguments from the '{self.device.type.upper()}' backend: only "
            "tensors on GPUs can be recorded on a stream"
        )
    from tensorgrad.storage.cuda.memory import used_by

    used_by(self._storage, self._array.data.mem, stream.stream)


@composite("method")
def pin_memory(self: Tensor, device=None) -> Tensor:
    """Returns a copy in page-locked memory for fast copies to the GPU; itself if it is already pinned.

    Raises:
        RuntimeError: If there is no GPU, or the tensor is on one.

    >>> x = torch.ones(2)
    >>> x = x.pin_memory() if torch.cuda.is_available() else x
    """
    _deprecated_device("pin_memory", device)
    if not self.is_cpu:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    cuda = _cuda()
    if cuda is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    if self.is_pinned():
        return self
    array = self._array
    if isinstance(array, SparseArray):
        return wrap(array.of_parts(*map(cuda.locked, array.parts())))
    return wrap(cuda.locked(array))


def _deprecated_device(name: str, device) -> None:
    if device is not None:
        warn(
            f"The argument 'device' of Tensor.{name}() is deprecated. Please do not pass this argument.",
            DeprecationWarning,
        )


def _cuda():
    """Returns the storage class of CUDA devices, or None if there are none."""
    try:
        return storage_class(devices.device("cuda"))
    except RuntimeError:
        return None
