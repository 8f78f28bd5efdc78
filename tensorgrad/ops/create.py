"""Creation of tensors from Python values, arrays and shapes."""

from __future__ import annotations

import array as buffers
import functools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import index as as_int
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes, layouts
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.out import store_out
from tensorgrad.dispatch.promotion import plain_number
from tensorgrad.dispatch.slow_path import in_class_of
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import (
    MISSING,
    SHORT_MAX,
    arguments_named,
    as_integer,
    as_integers,
    as_number,
    check_flag,
    check_is_number,
    check_number,
    integers_given,
    warn,
    wrong_argument,
)
from tensorgrad.kernels.array import shape as kernels
from tensorgrad.layouts import AnyLayout, memory_strides
from tensorgrad.ops.shape import alias_of, listed
from tensorgrad.ops.sparse_zeros import clear, sparse_like, without_elements
from tensorgrad.rows.strides import like_input
from tensorgrad.settings import SETTINGS
from tensorgrad.size import Size
from tensorgrad.storage import fresh
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import PLAIN, Tensor, share, wrap
from tensorgrad.transforms.batch import whole


class _DefaultDevice(PerThread):
    """The device, per thread, of tensors made without `device=`."""

    device = devices.CPU
    outer: tuple = ()  # the devices that enclosing `with` blocks replaced, innermost last


DEFAULT_DEVICE = _DefaultDevice()


def _enter(self: devices.device) -> devices.device:
    """Makes `with torch.device("meta"):` set the default device of new tensors."""
    DEFAULT_DEVICE.outer = (*DEFAULT_DEVICE.outer, DEFAULT_DEVICE.device)
    DEFAULT_DEVICE.device = self
    return self


def _exit(self: devices.device, *exception) -> None:
    *outer, DEFAULT_DEVICE.device = DEFAULT_DEVICE.outer
    DEFAULT_DEVICE.outer = tuple(outer)


devices.device.__enter__ = _enter  # type: ignore[attr-defined]
devices.device.__exit__ = _exit  # type: ignore[attr-defined]


def resolve_device(device) -> devices.device:
    """Returns the device object for a user's argument (None, string, index or device)."""
    if device is None:
        return DEFAULT_DEVICE.device
    return device if device.__class__ is devices.device else devices.device(device)


def resolve_shape(size: tuple | list) -> tuple[int, ...]:
    """Returns the shape from `f(2, 3)` or `f((2, 3))`. Raises: TypeError if not integers, RuntimeError if negative."""
    if len(size) == 1 and isinstance(size[0], tuple | list):
        size = size[0]
    for n in size:
        if n.__class__ is not int or not 0 <= n <= SHORT_MAX:
            break
    else:
        return tuple(size)
    shape = as_integers(size, "size")
    if min(shape) < 0:
        n = next(n for n in shape if n < 0)
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def check_tensor(name: str, value) -> None:
    """For functions that may not otherwise inspect their argument. Raises: TypeError if it is not a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(value).__name__}")


def finish(array, requires_grad: bool, device, given: bool = False, pin_memory: bool = False) -> Tensor:
    """Wraps a newly made NumPy array as a tensor on `device`; on the CPU without a copy, unless in pinned memory.

    `given`: its values are the program's own, not those of a function such as `arange`.
    """
    device = resolve_device(device)
    if device.type != "cpu":
        storage = storage_class(device)
        array = (storage.from_host if given else storage.constant)(array, device)
    tensor = wrap(array)
    if requires_grad is not False and requires_grad is not None:
        check_flag(requires_grad, "requires_grad")
        if requires_grad and array.dtype.kind in "iub":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        tensor._requires_grad = bool(requires_grad)
    return pinned(tensor) if pin_memory else tensor


def pinned(made: Tensor) -> Tensor:
    """Moves a new tensor to pinned memory. Raises: RuntimeError without a GPU, or if the tensor is on one."""
    if made.is_meta:
        return made
    if not made.is_cpu:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    try:
        storage = storage_class(devices.device("cuda"))
    except RuntimeError:
        raise RuntimeError(
            "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on "
            "this system."
        ) from None
    pinned = wrap(storage.locked(made._array))  # type: ignore[attr-defined]
    pinned._requires_grad = made._requires_grad
    return pinned


# --- from values ---------------------------------------------------------------------------------------------------


def _array_of(data, dtype: dtypes.dtype | None) -> np.ndarray:
    """Makes a new array from Python numbers, nested sequences, NumPy values, tensors or a storage.

    Without `dtype`, the dtype is inferred as in PyTorch.
    """
    if dtype is None and (data.__class__ is float or data.__class__ is int) and -10000 < data < 10000:
        return np.array(data, np.int64 if data.__class__ is int else dtypes.DEFAULT.floating.numpy)
    if data.__class__ not in _COMMON:
        memory = over_storage(data, dtype)
        data = data if memory is None else memory
    if isinstance(data, Tensor):
        array = fresh.copied(STORAGES[data._array.__class__].to_host(data._array))
        return array if dtype is None else array.astype(dtype.numpy, copy=False)
    if hasattr(data, "__array__") and not isinstance(data, np.ndarray | np.generic):
        data = np.asarray(data.__array__())  # another library's tensor or a data frame's column: keep its dtype
    if isinstance(data, np.ndarray):
        found = dtypes.from_numpy_dtype(data.dtype)
        _check_layout(data)
        with np.errstate(all="ignore"):
            return fresh.copied(data, (dtype or found).numpy)
    kinds: set = set()
    shape = _first_lengths(data)
    if 0 in shape:  # the siblings of an empty sequence are not checked
        return np.empty(shape, (dtype or dtypes.DEFAULT.floating).numpy)
    if dtype in dtypes.BITS:
        raise RuntimeError("store_scalar: invalid type")
    if shape:
        if data.__class__ is list and isinstance(data[0], np.ndarray):
            warn(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the "
                "list to a single numpy.ndarray with numpy.array() before converting to a tensor."
            )
        data = _plain(data, shape, 0, kinds, dtype)
    else:
        data = _element(data, kinds, dtype)
    try:
        array = np.array(data)
    except ValueError:
        _check_lengths(data)
        raise
    if array.dtype.kind not in "biufc":
        bad = _first_non_number(data)
        if isinstance(bad, str | bytes):
            raise TypeError(f"new(): invalid data type '{type(bad).__name__}'")
        if not isinstance(bad, int):
            raise RuntimeError(f"Could not infer dtype of {type(bad).__name__}")
    if array.dtype.kind in "iu" or kinds <= {int, bool}:
        _check_integers(array, dtype, kinds)
    elif dtype is not None and dtype.category == dtypes.INTEGER:
        info = dtypes.iinfo(dtype)
        if not (info.min <= array.min() and array.max() <= float(info.max)):
            raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    if dtype is None:
        dtype = _inferred(array, kinds)
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy, order="C")


_COMMON = frozenset({list, tuple, int, float, bool, Tensor, np.ndarray})


def elements(storage: Storage, dtype: dtypes.dtype) -> Tensor:
    """Returns the whole memory of a storage as a vector of that dtype."""
    size = storage.nbytes() // dtype.itemsize
    return share(storage.strided((size,), (dtype.itemsize,), 0, dtype.numpy), storage)


# class of storages -> makes a vector of the requested dtype (None: the default) over one. The classes are built on
# tensors, so they register themselves (ops/pytorch/storage_values.py).
OVER_STORAGE: dict[type, Callable[[Any, dtypes.dtype | None], Tensor]] = {}


def over_storage(data, dtype: dtypes.dtype | None) -> Tensor | None:
    """Returns a vector over the memory of a storage, None for other data. Raises: RuntimeError for a typed storage of
    another dtype."""
    found = next((over for cls, over in OVER_STORAGE.items() if isinstance(data, cls)), None)
    return None if found is None else found(data, dtype)


def _is_sequence(data) -> bool:
    cls = data.__class__
    if cls is list or cls is tuple:
        return True
    if cls in dtypes.NUMBERS or isinstance(data, str | bytes):
        return False
    if isinstance(data, np.ndarray | Sequence | deque | buffers.array):
        return True
    counted = hasattr(cls, "__getitem__") and hasattr(cls, "__len__")
    return counted and not isinstance(data, Mapping | Tensor | np.generic)


def _first_lengths(data) -> tuple[int, ...]:
    """Infers the shape of nested sequences from the first item of each, up to the first that is empty.

    A tensor is an item at any depth; it counts as a sequence only when its siblings are sequences.
    """
    lengths: list[int] = []
    while _is_sequence(data):
        if isinstance(data, np.ndarray) and not data.ndim:
            break
        lengths.append(len(data))
        if not lengths[-1]:
            break
        if len(lengths) > 128:
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        try:
            data = data[0]
        except Exception:
            raise ValueError(f"could not determine the shape of object type '{type(data).__name__}'") from None
    if isinstance(data, str) and lengths:  # a string is a sequence of strings
        raise ValueError("too many dimensions 'str'")
    if isinstance(data, str | bytes) and not lengths:
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    return tuple(lengths)


def _check_integers(array: np.ndarray, dtype: dtypes.dtype | None, kinds: set) -> None:
    """Raises: ValueError, OverflowError or RuntimeError for integers that `dtype` (int64 if None) cannot hold.

    NumPy gives arrays of Python integers that do not fit into int64 another dtype kind.
    """
    if dtype is dtypes.uint64:
        if array.min() < 0:
            raise OverflowError("can't convert negative int to unsigned")
        if array.dtype.kind not in "biu":
            raise OverflowError("int too big to convert")
    elif dtype is None or dtype.category == dtypes.INTEGER:
        if array.dtype.kind not in "bi" and kinds <= {int, bool}:
            raise ValueError("Overflow when unpacking long long")
        if dtype is not None:
            info = dtypes.iinfo(dtype)
            low = info.min if dtype.is_signed else -info.max  # PyTorch lets small negative numbers wrap
            if array.min() < low or array.max() > info.max:
                raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def _plain(data, shape: tuple, dim: int, kinds: set, dtype: dtypes.dtype | None):
    """Converts dimension `dim` of nested sequences, and all below it, to lists of Python numbers.

    `kinds` collects the types of the elements, or the dtypes of tensors and arrays.
    """
    if data.__class__ is not list and not isinstance(data, Sequence | np.ndarray | deque | buffers.array):
        items = list(data)
        if len(items) < len(data):
            data.__getitem__(len(items))  # whose error this is
        if len(items) != shape[dim]:
            raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(items)})")
        data = items
    types = set(map(type, data))
    if types <= dtypes.NUMBERS and (dtype is None or complex not in types):  # checked without a Python loop
        kinds |= types
        return data if isinstance(data, list | tuple) else list(data)
    if dtype is None and any(x is data for x in data):
        raise TypeError("new(): self-referential lists are incompatible")
    dim += 1
    if dim == len(shape):
        return [_element(x, kinds, dtype) for x in data]
    made = []
    for x in data:
        if isinstance(x, Tensor) and x.ndim:  # next to sequences, a tensor counts as one
            if len(x) != shape[dim]:
                raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(x)})")
            x = x.unbind()
        made.append(_plain(x, shape, dim, kinds, dtype) if _is_sequence(x) else _element(x, kinds, dtype))
    return made


def _element(x, kinds: set, dtype: dtypes.dtype | None):
    """Converts one element to a Python number. Raises: ValueError, TypeError or RuntimeError unless it fits `dtype`."""
    if isinstance(x, Tensor):
        kinds.add(x.dtype)
        if dtype is not None and dtype.category < dtypes.FLOATING and x.dtype.category >= dtypes.FLOATING:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        if x._array.size != 1:
            if x.dtype.category < dtypes.FLOATING and (dtype is None or dtype.category < dtypes.FLOATING):
                raise TypeError("only integer tensors of a single element can be converted to an index")
            raise ValueError("only one element tensors can be converted to Python scalars")
        x = x.item()
        if dtype is not None and dtype.category < dtypes.COMPLEX and isinstance(x, complex):
            if x.imag:
                raise RuntimeError("value cannot be converted to type double without overflow")
            x = x.real
        return x
    if isinstance(x, np.ndarray):
        if x.ndim:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        x = x[()]
    kinds.add(x.__class__)
    if dtype is None or isinstance(x, bool | int | float):
        return x
    imaginary = isinstance(x, complex | np.complexfloating)
    if dtype is dtypes.bool and isinstance(x, complex | np.bool_):
        return bool(x)
    if dtype.category < dtypes.FLOATING:
        return as_int(x)
    return complex(x) if imaginary and dtype.category == dtypes.COMPLEX else math.ldexp(x, 0)


def _check_lengths(data) -> None:
    """Raises: ValueError or TypeError, with PyTorch's messages, for nested sequences that are not rectangular."""
    row, dim = data, 0
    level = [data]  # the sequences at one depth, all of which must have the length of the first
    while isinstance(row, list | tuple):
        for other in level:
            if not isinstance(other, list | tuple):
                raise TypeError(
                    f"not a sequence: torch.tensor expected one of length {len(row)} at dim {dim}, but got "
                    f"{type(other).__name__}"
                )
            if len(other) != len(row):
                raise ValueError(f"expected sequence of length {len(row)} at dim {dim} (got {len(other)})")
        level = [item for other in level for item in other]
        row, dim = (level[0] if level else None), dim + 1
    for item in level:
        if isinstance(item, list | tuple):
            raise TypeError(f"must be real number, not {type(item).__name__}: expected a number at depth {dim}")


def _first_non_number(data):
    """Returns the first item of nested sequences that is not a number; 0 if all are numbers."""
    if not isinstance(data, list | tuple):
        return data
    found = (_first_non_number(x) for x in data)
    return next((x for x in found if not isinstance(x, bool | int | float | complex)), 0)


def _inferred(array: np.ndarray, kinds: set) -> dtypes.dtype:
    """Infers the dtype of new data: as in PyTorch, NumPy values and tensors in lists keep their dtypes and promote."""
    carried = [k for k in kinds if k.__class__ is dtypes.dtype or issubclass(k, np.generic)]
    if carried:
        found = [k if k.__class__ is dtypes.dtype else dtypes.from_numpy_dtype(np.dtype(k)) for k in carried]
        found += [dtypes.of_number(k()) for k in kinds if k in dtypes.NUMBERS]
        return reduce(dtypes.promote_types, found)
    if array.dtype.kind == "b":
        return dtypes.bool
    if array.dtype.kind == "i" and array.size:
        return dtypes.int64
    return dtypes.DEFAULT.complex if array.dtype.kind == "c" else dtypes.DEFAULT.floating


@composite("function")
def tensor(data, *, dtype=None, device=None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Returns a new leaf tensor with a copy of `data`: a number, nested sequences of numbers, an array, or a tensor.

    Without `dtype`, floats get the default dtype, integers int64, booleans bool, and arrays keep their own.

    Args:
        data: what the tensor has the shape of: a number gives shape (), a list of n numbers (n,).

    Raises:
        ValueError: If sequences at the same depth differ in length.
        TypeError, RuntimeError: If `data` contains anything but numbers.

    >>> torch.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
        )
        device = data.device if device is None else device
    elif data.__class__ is not list and hasattr(data, "__cuda_array_interface__"):
        made = _on_gpu(data).clone().to(device=device, dtype=dtype)
        return made.requires_grad_() if requires_grad else made
    if requires_grad:
        check_flag(requires_grad, "requires_grad")
    if requires_grad and dtype is not None and dtype.category < dtypes.FLOATING:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    made = finish(_array_of(data, dtype), requires_grad, device, given=True)
    return pinned(made) if pin_memory else made


@composite("function", name="as_tensor")
def as_tensor(data, dtype=None, device=None) -> Tensor:
    """Converts `data` to a tensor, sharing memory with an array or tensor if the dtype and device allow it.

    Args:
        data: a tensor, an array, a number, or nested sequences of numbers.

    >>> import numpy as np, tensorgrad as torch
    >>> a = np.zeros(2); t = torch.as_tensor(a); t[0] = 5
    >>> float(a[0])
    5.0
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if isinstance(data, np.ndarray):
        made = from_numpy(data)
        return made.to(device=device, dtype=dtype) if dtype is not None or device is not None else made
    if hasattr(data, "__cuda_array_interface__"):
        return _on_gpu(data).to(device=device, dtype=dtype)
    return finish(_array_of(data, dtype), False, device, given=True)


def _on_gpu(array) -> Tensor:
    """Wraps another library's GPU array as a tensor that shares its memory."""
    storage_class(devices.device("cuda"))  # raises if something is missing
    import cupy

    return wrap(cupy.asarray(array))


def _check_layout(ndarray: np.ndarray) -> None:
    """Raises: ValueError for strides or a byte order that tensors do not support."""
    size = ndarray.itemsize
    whole = ndarray.dtype.isnative
    for stride in ndarray.strides:
        if stride < 0:
            raise ValueError(
                "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
                "currently supported. (You can probably work around this by making a copy of your array with "
                "array.copy().)"
            )
        whole = whole and not stride % size
    if not whole:
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size, or not in native byte order"
        )


@composite("function")
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Returns a tensor that shares the memory of a NumPy array.

    Args:
        ndarray: the array, of any shape; writing to it changes the tensor.

    Raises:
        TypeError: If `ndarray` is not an array or its dtype does not exist in PyTorch.
        ValueError: If a stride is negative.

    >>> import numpy as np
    >>> array = np.zeros(2)
    >>> x = torch.from_numpy(array)
    >>> array[0] = 7
    >>> x
    tensor([7., 0.], dtype=torch.float64)
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    dtypes.from_numpy_dtype(ndarray.dtype)
    _check_layout(ndarray)
    return wrap(ndarray if type(ndarray) is np.ndarray else ndarray.view(np.ndarray))


def legacy_tensor(args: tuple, device, dtype: dtypes.dtype | None = None) -> Tensor:
    """Implements `torch.Tensor(...)` and (with `dtype`) `torch.LongTensor(...)`.

    Sizes give uninitialized memory, a sequence gives a copy, and a tensor gives a view. Raises: TypeError for anything
    else, and for a tensor of another dtype.
    """
    (data,) = args if len(args) == 1 else (None,)
    if isinstance(data, Tensor):
        if dtype is not None and data.dtype is not dtype:
            raise TypeError(f"expected a tensor of {dtype}, but got one of {data.dtype}: convert it with .to()")
        return alias_of(data)
    dtype = dtype or dtypes.DEFAULT.floating
    if isinstance(data, Size):  # even an empty one
        return empty(data, dtype=dtype, device=device)
    if len(args) == 1 and (data.__class__ is bool or not isinstance(data, int | np.integer)):
        if isinstance(data, str | bytes):
            raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
        memory = over_storage(data, dtype)
        if memory is not None:
            return memory
        if not _is_sequence(data):
            raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
        return tensor(data, dtype=dtype, device=device)
    return empty(args or (0,), dtype=dtype, device=device)


def check_legacy_device(device: Any, expected: str = "cpu") -> None:
    """Raises: RuntimeError if a legacy constructor is called with another type of device than its own."""
    if device is not None and (given := resolve_device(device).type) != expected:
        raise RuntimeError(f"legacy constructor expects device type: {expected} but device type: {given} was passed")


def _constructed(cls, *args, device=None, **kwargs):
    """Implements `Tensor(2, 3)`, also for subclasses."""
    check_legacy_device(device)
    made = legacy_tensor(args, device)
    return made if cls is Tensor else made.as_subclass(cls)


Tensor.__new__ = staticmethod(_constructed)  # type: ignore[assignment]


# --- from shapes ---------------------------------------------------------------------------------------------------


def _filled(maker, value, shape, dtype, device, requires_grad, pin_memory) -> Tensor:
    """Makes a tensor filled with `value` (None: uninitialized), with `maker` in NumPy or directly on a device."""
    dtype = dtype or dtypes.DEFAULT.floating
    if dtype.__class__ is not dtypes.dtype:
        dtype = dtypes.as_dtype(dtype, maker.__name__)
    device = resolve_device(device)
    if requires_grad:
        check_flag(requires_grad, "requires_grad")
    if requires_grad and dtype.category < dtypes.FLOATING:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if value is None and SETTINGS.deterministic and SETTINGS.fill_memory:
        value = unset(dtype)
        maker = functools.partial(np.full, fill_value=value)
    if device.type == "cpu":
        try:
            array = maker(shape, dtype=dtype.numpy)
        except ValueError:  # NumPy: larger than any address space
            if len(shape) > 64:
                raise RuntimeError("only tensors with up to 64 dims are supported") from None
            if 0 in shape:
                raise RuntimeError("Stride calculation overflowed") from None
            raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}") from None
        if value and array.dtype.names is not None:
            raise NotImplementedError(f"\"fill_cpu\" not implemented for '{scalar_type(dtype)}'")
    elif device.type == "meta":
        array = storage_class(device).empty(shape, dtype.numpy, device)
    else:
        storage = storage_class(device)
        array = storage.empty(shape, dtype.numpy, device)
        if value is not None:
            storage.write(array, value)
    made = wrap(array)
    made._requires_grad = bool(requires_grad)
    return pinned(made) if pin_memory else made


def _of_ones(shape, dtype):
    """`np.ones`, whose checks of arguments take longer than filling a small array."""
    array = np.empty(shape, dtype)
    if dtype.kind == "V" and dtype.names is not None:
        raise NotImplementedError(f"\"fill_cpu\" not implemented for '{scalar_type(dtypes.from_numpy_dtype(dtype))}'")
    array.fill(1)
    return array


def unset(dtype: dtypes.dtype):
    """Returns the fill value of uninitialized memory where results must be deterministic."""
    if dtype.category >= dtypes.FLOATING:
        return math.nan
    return True if dtype is dtypes.bool else dtypes.iinfo(dtype).max


def _out(name: str, out, made: Tensor, fills: bool = False) -> Tensor:
    """Returns the newly made tensor, or `out` with its values; `out` then requires grad if the new tensor would.

    `fills`: whether an `out` with the same number of elements keeps its shape.
    """
    if out is None:
        return made
    if fills and isinstance(out, Tensor) and out.numel() == made.numel():
        made = made.reshape(out.shape)
    out = store_out(name, out, made.detach(), quietly=True)
    return out.requires_grad_() if made.requires_grad else out


def _dtype_of(out: Tensor, dtype, layout=None, device=None):
    """Returns the dtype of the values to be stored in `out`. Raises: RuntimeError if what is asked for differs."""
    if device is not None and (given := resolve_device(device).type) != out.device.type:
        raise RuntimeError(f"device type {given} does not match device type of out parameter ({out.device.type})")
    if layout is not None and layout is not out.layout:
        given, found = (x.name.title().replace("_", "").removesuffix("Coo") for x in (layout, out.layout))
        raise RuntimeError(f"layout {given} does not match layout of out parameter ({found})")
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {scalar_type(dtype)} does not match dtype of out parameter ({scalar_type(out)})")
    return out.dtype


@composite("function")
def zeros(
    *size, out=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False, pin_memory=False, **named
) -> Tensor:
    """Returns a tensor filled with zeros.

    >>> torch.zeros(2, 2)
    tensor([[0., 0.],
            [0., 0.]])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype, layout, device)
    shape = resolve_shape(integers_given("zeros", "size", size, named))
    if out is not None and STORAGES[out._array.__class__].layout is not layouts.strided:
        return clear(out, shape, requires_grad)
    if layout is not None and layout is not layouts.strided:
        return without_elements("zeros", shape, layout, dtype, device, requires_grad)
    return _out("zeros", out, _filled(np.zeros, 0, shape, dtype, device, requires_grad, pin_memory))


@composite("function")
def ones(
    *size, out=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False, pin_memory=False, **named
) -> Tensor:
    """Returns a tensor filled with ones.

    >>> torch.ones(2, 3)
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype, layout, device)
    shape = resolve_shape(integers_given("ones", "size", size, named))
    if layout is not None and layout is not layouts.strided:
        return without_elements("ones", shape, layout, dtype, device, requires_grad)
    return _out("ones", out, _filled(_of_ones, 1, shape, dtype, device, requires_grad, pin_memory))


@composite("function")
def empty(
    *size,
    out=None,
    dtype=None,
    layout: AnyLayout = None,
    device=None,
    requires_grad=False,
    pin_memory=False,
    memory_format=None,
    **named,
) -> Tensor:
    """Returns an uninitialized tensor: its values are whatever the memory contained.

    >>> torch.empty(2, 3).shape
    torch.Size([2, 3])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype, layout, device)
    shape = resolve_shape(integers_given("empty", "size", size, named))
    if out is not None and STORAGES[out._array.__class__].layout is not layouts.strided:
        return clear(out, shape, requires_grad)
    if layout is not None and layout is not layouts.strided:
        return without_elements("empty", shape, layout, dtype, device, requires_grad)
    if memory_format is not None and (strides := memory_strides(shape, memory_format)) != memory_strides(shape, None):
        return _out(
            "empty",
            out,
            empty_strided(
                shape, strides, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
            ),
        )
    return _out("empty", out, _filled(fresh.empty, None, shape, dtype, device, requires_grad, pin_memory))


def reach(size: tuple, stride: tuple) -> int:
    """Returns the number of elements that memory must have for a tensor of that shape and strides."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


@composite("function")
def empty_strided(
    size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns an uninitialized tensor with the given shape and strides (in elements), in memory just large enough.

    Raises:
        RuntimeError: If `size` and `stride` differ in length or a stride is negative.

    >>> torch.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    size, stride = resolve_shape((size,)), listed(stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    if any(s < 0 for s in stride):
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}: strides must not "
            "be negative"
        )
    memory = empty(reach(size, stride), dtype=dtype, device=device, pin_memory=pin_memory)
    made = share(strided(memory._storage, size, stride, 0, memory._array.dtype), memory._storage)
    return made.requires_grad_() if requires_grad else made


def strided(storage: Storage, size: tuple, stride: tuple, offset: int, dtype: np.dtype):
    """Returns an array over a storage's memory; the offset and strides are in elements."""
    if 0 in size and storage.array_type is np.ndarray:  # no memory is accessed, so none is needed
        return kernels.strided_nothing(size, stride, dtype)
    strides = tuple(s * dtype.itemsize for s in stride)
    return storage.strided(size, strides, offset * dtype.itemsize, dtype)


def wrapped(value, dtype: dtypes.dtype):
    """Wraps a negative number as an unsigned dtype does; other numbers are unchanged."""
    if value.__class__ is bool or dtype.is_signed or dtype.category != dtypes.INTEGER:
        return value
    return int(value) % 2 ** (8 * dtype.itemsize)


@composite("function")
def full(
    size, fill_value, *, out=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False,
    pin_memory=False
) -> Tensor:  # fmt: skip
    """Returns a tensor filled with `fill_value`, whose type determines the dtype if none is given.

    Args:
        size: the shape.
        fill_value: a number.

    >>> torch.full((2, 3), 7)
    tensor([[7, 7, 7],
            [7, 7, 7]])
    """
    if size.__class__ not in (tuple, list, Size) and not isinstance(size, tuple | list):
        raise wrong_argument(size, "size", "tuple of ints")
    fill_value = as_number(plain_number(fill_value), "fill_value")
    dtype = (dtype or dtypes.of_number(fill_value)) if out is None else _dtype_of(out, dtype, device=device)
    check_number(fill_value, dtype)
    value = wrapped(fill_value, dtype)
    shape = resolve_shape((size,))
    if layout is not None and layout is not layouts.strided:
        return without_elements("full", shape, layout, dtype, device, requires_grad)
    return _out(
        "full",
        out,
        _filled(functools.partial(np.full, fill_value=value), value, shape, dtype, device, requires_grad, pin_memory),
    )


def _like(name: str, function, fills: bool, maker=None):
    """Makes `zeros_like` from `zeros`: with the shape, dtype and device of a tensor and, if dense, its strides.

    `maker` is NumPy's function, for calls without anything special.
    """

    def like(
        input: Tensor, *fill, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False,
        memory_format=None, pin_memory=False, **named
    ) -> Tensor:  # fmt: skip
        if (
            maker is not None
            and input.__class__ in PLAIN
            and not (fill or named or dtype or layout or requires_grad or memory_format or pin_memory)
            and device is None
        ):
            array = input._array
            if array.__class__ is np.ndarray and array.flags.c_contiguous:
                return wrap(maker(array.shape, array.dtype))
        check_tensor(name, input)
        fill = arguments_named(name, ("fill_value",) if fills else (), fill, named, 1)
        own = STORAGES[input._array.__class__].layout
        if own is not layouts.strided or (layout is not None and layout is not layouts.strided):
            wanted = own if layout is None else layout
            if wanted is not layouts.strided:
                if memory_format is not None:
                    raise RuntimeError("memory format option is only supported by strided tensors")
                value = 1 if name == "ones_like" else fill[0] if fill else None
                return sparse_like(name, input, wanted, dtype, device, requires_grad, value)
        made = function(
            tuple(input._array.shape), *fill, dtype=dtype or input.dtype,
            device=input.device if device is None else device, requires_grad=requires_grad, pin_memory=pin_memory,
        )  # fmt: skip
        array = input._array
        if memory_format is not None and "preserve" not in str(memory_format):
            strides = memory_strides(tuple(array.shape), memory_format)
            if strides != made.stride():
                ordered = empty_strided(array.shape, strides, dtype=made.dtype, device=made.device)
                made = ordered.copy_(made.detach()).requires_grad_(requires_grad)
        elif array.ndim > 1 and not array.flags.c_contiguous:
            dense = like_input(array, made._array)
            if dense is not made._array:
                made = share(dense, made._storage.__class__.of(dense))
                made._requires_grad = bool(requires_grad)
        if input.__class__ not in PLAIN and hasattr(input, "_like_this"):  # a class that has its own layout of memory
            return input._like_this(made)
        return made if array.__class__ is np.ndarray else STORAGES[array.__class__].for_each_sample(array, made)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = (
        f"`{function.__name__}` with the shape, dtype and device of `input`, unless another dtype or device is given."
    )
    return composite("function", name=name)(like)


zeros_like = _like("zeros_like", zeros, False, np.zeros)
ones_like = _like("ones_like", ones, False, _of_ones)
empty_like = _like("empty_like", empty, False)
full_like = _like("full_like", full, True)


def _new(name: str, function, example: str, printed: str, *keywords: str):
    def new(
        self, *args, dtype=None, device=None, requires_grad=False, layout: AnyLayout = None, pin_memory=False, **named
    ) -> Tensor:
        if keywords:
            args = arguments_named(name, keywords, args, named)
        else:
            args = integers_given(name, "size", args, named)
        own = STORAGES[self._array.__class__].layout if layout is None else layout
        if own is not layouts.strided and function is not tensor:
            shape = resolve_shape(args[:1] if function is full else args)
            return in_class_of(self, without_elements(name, shape, own, dtype or self.dtype, device, requires_grad))
        made = function(
            *args,
            dtype=dtype or self.dtype,
            device=self.device if device is None else device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )
        array = self._array
        if array.__class__ is not np.ndarray:
            made = STORAGES[array.__class__].for_each_sample(array, made)
        return made if self.__class__ in PLAIN else in_class_of(self, made)

    new.__name__ = new.__qualname__ = name
    new.__doc__ = f"""`torch.{function.__name__}` with this tensor's dtype and device unless others are given.

    >>> torch.ones(1, dtype=torch.float64).{name}({example})
    {printed}
    """
    composite("method", name=name)(new)


_new("new_zeros", zeros, "2", "tensor([0., 0.], dtype=torch.float64)")
_new("new_ones", ones, "2", "tensor([1., 1.], dtype=torch.float64)")
_new("new_empty", empty, "0, 3", "tensor([], size=(0, 3), dtype=torch.float64)")
_new("new_full", full, "(2,), 7", "tensor([7., 7.], dtype=torch.float64)", "size", "fill_value")
_new("new_tensor", tensor, "[1, 2]", "tensor([1., 2.], dtype=torch.float64)", "data")


LEGACY: dict[Any, Callable] = {}  # layout -> what makes its tensors for `x.new()` (ops/sparse/construct.py)


@composite("method")
def new(self, *args, device=None) -> Tensor:
    """PyTorch's legacy constructor with this tensor's dtype: takes sizes, or data to copy.

    >>> torch.zeros(1, dtype=torch.int64).new([1, 2]), torch.zeros(1).new(2, 3).shape
    (tensor([1, 2]), torch.Size([2, 3]))
    """
    check_legacy_device(device, self.device.type)
    if STORAGES[self._array.__class__].layout is layouts.sparse_coo:
        return LEGACY[layouts.sparse_coo](*args, dtype=self.dtype)
    return legacy_tensor(args, device or self.device, self.dtype)


_LARGE = 1 << 62  # no integer below needs a look


@composite("function")
def arange(
    start=MISSING, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False,
    pin_memory=False
) -> Tensor:  # fmt: skip
    """Returns the values `start, start + step, ...` up to but excluding `end`.

    Integer arguments give int64; if any is a float, the default dtype.

    Args:
        start: the first value; 0 if only one number is given, which then is `end`.
        end: the bound, which is excluded.
        step: the difference of two values, not 0; it may be negative.

    >>> torch.arange(3), torch.arange(1, 2, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    if start is MISSING:
        if end is None:
            raise TypeError('arange() missing 1 required positional arguments: "end"')
        start = 0
    if end is None:
        start, end = 0, start
    whole = start.__class__ is int and end.__class__ is int and step.__class__ is int
    if not whole or not -_LARGE < start < _LARGE or not -_LARGE < end < _LARGE or not -_LARGE < step < _LARGE:
        named = (("start", start), ("end", end), ("step", step))
        start, end, step = (as_number(plain_number(value), name) for name, value in named)
        for value in (start, end, step):
            check_number(value, dtypes.float64)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if not whole:
        if any(not math.isfinite(v) for v in (start, end)):
            raise RuntimeError(f"unsupported range: {start} -> {end}")
        whole = all(isinstance(v, int) for v in (start, end, step))
    if out is not None:
        dtype = _dtype_of(out, dtype, device=device)
    if dtype is None:
        dtype = dtypes.int64 if whole else dtypes.DEFAULT.floating
    if dtype is dtypes.bool or dtype.is_complex or dtype in dtypes.BITS:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{scalar_type(dtype)}'")
    if dtype is dtypes.int64:  # the arguments are truncated first
        start, end, step, whole = int(start), int(end), int(step), True
        if step == 0:
            raise ValueError("step must be nonzero")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if out is not None and out.numel() not in (0, count):
        warn(
            f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()} which does not "
            f"match the computed number of elements {count}. Note that this may occur as a result of rounding error. "
            f"The out tensor will be resized to a tensor of shape ({count},)."
        )
    if dtype.category >= dtypes.FLOATING:
        array = (start + step * np.arange(count, dtype=np.float64)).astype(dtype.numpy)
    else:
        array = (int(start) + int(step) * np.arange(count, dtype=np.int64)).astype(dtype.numpy)
    return _out("arange", out, finish(array, requires_grad, device, pin_memory=pin_memory), fills=True)


@composite("function", name="range")
def range_(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Like `arange`, but includes `end` and is always floating-point (deprecated in PyTorch).

    >>> torch.range(1, 2, 0.5)
    tensor([1.0000, 1.5000, 2.0000])
    """
    warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    dtype = dtype if out is None else _dtype_of(out, dtype, device=device)
    count = math.floor((end - start) / step) + 1
    array = (start + step * np.arange(count, dtype=np.float64)).astype((dtype or dtypes.DEFAULT.floating).numpy)
    return _out("range", out, finish(array, requires_grad, device), fills=True)


@composite("function")
def linspace(
    start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns `steps` evenly spaced values from `start` to `end`, both included.

    As in PyTorch, each half is computed from its own end, so the result is symmetric.

    Args:
        start, end: the first and the last value: numbers or 0-dimensional tensors.
        steps: how many, 0 or more.

    >>> torch.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    if any(isinstance(v, Tensor) and whole(v) is not v for v in (start, end)):
        return _between_tensors(start, end, steps, dtype)
    start, end, steps, device = _ends("linspace", start, end, steps, device)
    check_is_number(start, "start")
    check_is_number(end, "end")
    if out is not None:
        dtype = _dtype_of(out, dtype, device=device)
    dtype = _dtype_of_ends("linspace", start, end, dtype)
    array = _spaced(start, end, steps, dtype)
    if dtype.category < dtypes.FLOATING:
        array = np.trunc(array)
    made = finish(array.astype(dtype.numpy), requires_grad, device, pin_memory=pin_memory)
    return _out("linspace", out, made, fills=True)


def _between_tensors(start, end, steps: int, dtype: dtypes.dtype | None) -> Tensor:
    """Evenly spaced values between other numbers for each sample of a batch (vmap)."""
    dtype = dtype or (dtypes.DEFAULT.floating if not _is_complex(start, end) else dtypes.DEFAULT.complex)
    start, end = (v if isinstance(v, Tensor) else tensor(v) for v in (start, end))
    if dtype.category < dtypes.FLOATING:
        start, end = start.trunc(), end.trunc()
    wide = dtypes.complex128 if dtype.category == dtypes.COMPLEX else dtypes.float64
    i = arange(steps, dtype=dtypes.float64, device=start.device)
    start, end = start.to(wide).unsqueeze(-1), end.to(wide).unsqueeze(-1)
    step = (end - start) / max(steps - 1, 1)
    return (start + step * i).where(i < max(steps // 2, 1), end - step * (steps - 1 - i)).to(dtype)


def _is_complex(*ends) -> bool:
    return any(v.is_complex() if isinstance(v, Tensor) else isinstance(v, complex) for v in ends)


def _dtype_of_ends(name: str, start, end, dtype: dtypes.dtype | None) -> dtypes.dtype:
    """Returns the dtype of evenly spaced values. Raises: RuntimeError for a real dtype with complex ends."""
    default = dtypes.DEFAULT
    if not isinstance(start, complex) and not isinstance(end, complex):
        return dtype or default.floating
    if dtype is not None and not dtype.is_complex:
        inner = {"complex64": "float", "complex128": "double"}[default.complex.name]
        raise RuntimeError(
            f"torch.{name}(): inferred dtype c10::complex<{inner}> can't be safely cast to passed dtype "
            f"{scalar_type(dtype)}"
        )
    return dtype or default.complex


def _ends(name: str, start, end, steps, device):
    """Returns start, end and number of steps as Python numbers, and the device: that of a tensor unless given."""
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got ({type(start).__name__}, "
            f"{type(end).__name__}, {type(steps).__name__}), but steps must be int"
        )
    steps = as_integer(steps, "steps")
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    ends = []
    for which, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor):
            if value.ndim:
                raise RuntimeError(
                    f"{name} only supports 0-dimensional start and end tensors, but got {which} with {value.ndim} "
                    "dimension(s)."
                )
            device = value.device if device is None else device
            value = 0 if value.is_meta else value.item()
        ends.append(value)
    return *ends, steps, device


def _spaced(start, end, steps: int, dtype) -> np.ndarray:
    """Computes evenly spaced values, not yet rounded to `dtype`; for integers the ends are truncated first."""
    work: np.dtype = np.dtype("float64")
    if dtype.category < dtypes.FLOATING:
        start, end = int(start), int(end)
        check_number(start, dtype)
        check_number(end, dtype)
    else:
        work = dtype.numpy  # in half precision each step is rounded
    if steps == 1:
        return np.full(1, start, work)
    begin, last = work.type(start), work.type(end)
    step = (last - begin) / work.type(max(steps - 1, 1))
    i = np.arange(steps).astype(work)
    with np.errstate(all="ignore"):
        return np.where(np.arange(steps) < steps // 2, begin + step * i, last - step * i[::-1])


@composite("function")
def logspace(
    start, end, steps, base: float = 10.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False,
    pin_memory=False
) -> Tensor:  # fmt: skip
    """Returns `base` raised to the powers `linspace(start, end, steps)`.

    >>> torch.logspace(0, 3, 4)
    tensor([   1.,   10.,  100., 1000.])
    """
    if any(isinstance(v, Tensor) and whole(v) is not v for v in (start, end)):
        return base ** _between_tensors(start, end, steps, dtype)
    start, end, steps, device = _ends("logspace", start, end, steps, device)
    check_is_number(start, "start")
    check_is_number(end, "end")
    dtype = _dtype_of_ends("logspace", start, end, dtype if out is None else _dtype_of(out, dtype, device=device))
    integers = dtype.category < dtypes.FLOATING
    wide = dtypes.complex128 if dtype.category == dtypes.COMPLEX else dtypes.float64
    exponents = _spaced(start, end, steps, dtype if integers else wide)
    with np.errstate(all="ignore"):
        array = (base**exponents).astype(dtype.numpy)
    return _out("logspace", out, finish(array, requires_grad, device, pin_memory=pin_memory), fills=True)


@composite("function")
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """Returns an `n` by `m` matrix (`n` by `n` if `m` is not given) with ones on the diagonal and zeros elsewhere.

    Args:
        n: the number of rows.
        m: that of columns; `n` if None.

    >>> torch.eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    for name, size in (("n", n), ("m", n if m is None else m)):
        if as_integer(size, name) < 0:
            raise RuntimeError(f"n must be greater or equal to 0, got {size}")
    dtype = dtype if out is None else _dtype_of(out, dtype, device=device)
    array = np.eye(n, m, dtype=(dtype or dtypes.DEFAULT.floating).numpy)
    return _out("eye", out, finish(array, requires_grad, device, pin_memory=pin_memory))


@composite("function")
def scalar_tensor(
    s, *, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns a 0-dimensional tensor, in the default dtype unless `dtype` is given.

    Raises:
        TypeError: If `s` is not a number.

    >>> torch.scalar_tensor(2)
    tensor(2.)
    """
    s = as_number(plain_number(s), "s")
    dtype = dtype or dtypes.DEFAULT.floating
    check_number(s, dtype)
    if layout is not None and not isinstance(layout, layouts.layout):
        raise wrong_argument(layout, "layout", "torch.layout")
    return tensor(s, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory)
