"""New tensors from Python values, arrays, and shapes."""

from __future__ import annotations

import math
import threading
from functools import reduce

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.ops.errors import as_integer, check_number, warn
from tensorgrad.ops.kinds import composite
from tensorgrad.ops.promote import plain_number
from tensorgrad.size import Size
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.tensor import Tensor, share, wrap


class _DefaultDevice(threading.local):
    """Where this thread makes tensors without `device=`."""

    device = devices.CPU
    outer: tuple = ()  # the devices that `with` blocks put aside, the innermost last


DEFAULT_DEVICE = _DefaultDevice()


def _enter(self: devices.device) -> devices.device:
    """`with torch.device("meta"):` makes tensors there unless they say otherwise."""
    DEFAULT_DEVICE.outer = (*DEFAULT_DEVICE.outer, DEFAULT_DEVICE.device)
    DEFAULT_DEVICE.device = self
    return self


def _exit(self: devices.device, *exception) -> None:
    *outer, DEFAULT_DEVICE.device = DEFAULT_DEVICE.outer
    DEFAULT_DEVICE.outer = tuple(outer)


devices.device.__enter__ = _enter  # type: ignore[attr-defined]
devices.device.__exit__ = _exit  # type: ignore[attr-defined]


def resolve_device(device) -> devices.device:
    """The device object for what a user wrote (None, string, index, object)."""
    if device is None:
        return DEFAULT_DEVICE.device
    return device if device.__class__ is devices.device else devices.device(device)


def resolve_shape(size: tuple | list) -> tuple[int, ...]:
    """A shape from `f(2, 3)` or `f((2, 3))`. Raises: TypeError for what is no integer, RuntimeError if negative."""
    if len(size) == 1 and isinstance(size[0], tuple | list):
        size = size[0]
    shape = tuple(n if n.__class__ is int else as_integer(n, "size", "tuple of ints") for n in size)
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def given_size(name: str, size: tuple, named: dict) -> tuple:
    """`size` by position or as a keyword. Raises: TypeError if it is missing, or for an unknown keyword."""
    if "size" in named and not size:
        size = (named.pop("size"),)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    return size


def check_tensor(name: str, value) -> None:
    """For functions that may not look at their argument. Raises: TypeError if it is no tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(value).__name__}")


def finish(array, requires_grad: bool, device) -> Tensor:
    """A NumPy array that nobody else holds, as a tensor on `device`."""
    device = resolve_device(device)
    if device.type != "cpu":
        array = storage_class(device).from_host(array, device)
    tensor = wrap(array)
    if requires_grad:
        if array.dtype.kind in "iub":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        tensor._requires_grad = True
    return tensor


def _pinned(made: Tensor) -> Tensor:
    """A new tensor moved to pinned memory. Raises: RuntimeError without a GPU, and for a tensor that is on one."""
    from tensorgrad.storage.cuda import load

    if made.is_meta:
        return made
    if not made.is_cpu:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    try:
        storage = load()
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
    """A fresh array of Python numbers, nested sequences, NumPy values or tensors, with PyTorch's inferred dtype."""
    if isinstance(data, Tensor):
        array = np.array(STORAGES[data._array.__class__].to_host(data._array))
        return array if dtype is None else array.astype(dtype.numpy, copy=False)
    if hasattr(data, "__array__") and not isinstance(data, np.ndarray | np.generic):
        data = np.asarray(data.__array__())  # another library's tensor, a table's column: its dtype counts
    if isinstance(data, np.ndarray | np.generic):
        if dtype is None:
            dtype = dtypes.from_numpy_dtype(data.dtype)
        return np.array(data, dtype.numpy)
    kinds: set = {data.__class__}
    if isinstance(data, list | tuple):
        kinds.clear()
        data = _plain(data, kinds)
    try:
        array = np.array(data)
    except ValueError:
        _check_lengths(data)
        raise
    if array.dtype.kind not in "biufc":
        bad = _first_non_number(data)
        if not isinstance(bad, int):
            kind = type(bad).__name__
            if kind == "str":
                if _is_first(bad, data):  # a text is a sequence, too
                    raise ValueError(f"too many dimensions '{kind}'")
                raise TypeError(f"new(): invalid data type '{kind}'")
            raise RuntimeError(f"Could not infer dtype of {kind}")
    if array.size and (array.dtype.kind in "iu" or kinds <= {int, bool}):
        _check_integers(array, dtype, kinds)
    if dtype is None:
        dtype = _inferred(array, kinds)
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy, order="C")


def _check_integers(array: np.ndarray, dtype: dtypes.dtype | None, kinds: set) -> None:
    """Raises: ValueError, OverflowError or RuntimeError for integers that `dtype` (int64 if None) cannot hold.

    NumPy has made an array of another kind of Python integers that do not fit into int64.
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


def _plain(data, kinds: set):
    """Nested sequences with tensors (of one element, or rows) replaced by their values. `kinds` collects the types of
    the elements; of tensors and arrays the dtypes."""
    types = set(map(type, data))
    if types <= dtypes.NUMBERS:  # nothing to replace, found out without a Python loop
        kinds |= types
        return data
    made = []
    for x in data:
        if isinstance(x, list | tuple):
            x = _plain(x, kinds)
        elif isinstance(x, Tensor | np.ndarray):
            kinds.add(x.dtype if isinstance(x, Tensor) else dtypes.from_numpy_dtype(x.dtype))
            x = x.tolist()
        else:
            kinds.add(x.__class__)
        made.append(x)
    return made


def _check_lengths(data) -> None:
    """Raises: ValueError or TypeError, in PyTorch's words, for nested sequences that are no table."""
    row, dim = data, 0
    level = [data]  # the sequences at one depth, which must be as the first of them
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
    if any(isinstance(item, list | tuple) for item in level):
        raise TypeError(f"torch.tensor expected a number at depth {dim}, but got a sequence")


def _is_first(leaf, data) -> bool:
    """Whether nested sequences begin with `leaf`."""
    while isinstance(data, list | tuple) and data:
        data = data[0]
        if data is leaf:
            return True
    return False


def _first_non_number(data):
    """The first item of nested sequences that is no number; 0 if all are."""
    if not isinstance(data, list | tuple):
        return data
    found = (_first_non_number(x) for x in data)
    return next((x for x in found if not isinstance(x, bool | int | float | complex)), 0)


def _inferred(array: np.ndarray, kinds: set) -> dtypes.dtype:
    """The dtype of new data: NumPy's values and tensors in lists keep theirs, as in PyTorch, and are promoted."""
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
    """A new leaf with a copy of `data`: a number, nested sequences of numbers, an array, or a tensor.

    Without `dtype`, floats become the default dtype, integers int64, booleans bool, and arrays keep theirs.

    Raises: ValueError for ragged sequences, TypeError or RuntimeError for what holds no numbers.

    >>> import tensorgrad as torch
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
    if requires_grad and dtype is not None and dtype.category < dtypes.FLOATING:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    made = finish(_array_of(data, dtype), requires_grad, device)
    return _pinned(made) if pin_memory else made


@composite("function", name="as_tensor")
def as_tensor(data, dtype=None, device=None) -> Tensor:
    """`data` as a tensor, sharing memory with an array or tensor where dtype and device allow it.

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
    return finish(_array_of(data, dtype), False, device)


def _on_gpu(array) -> Tensor:
    """A tensor that shares the memory of another library's array on a GPU."""
    storage_class(devices.device("cuda"))  # says what is missing
    import cupy

    return wrap(cupy.asarray(array))


def _check_layout(ndarray: np.ndarray) -> None:
    """Raises: ValueError for strides, or an order of bytes, that tensors cannot have."""
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
    """A tensor that shares the memory of a NumPy array.

    Raises: TypeError for what is no array or has no PyTorch dtype, ValueError for negative strides.

    >>> import numpy as np
    >>> import tensorgrad as torch
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


@composite("function")
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad: bool = False) -> Tensor:
    """`obj` as a tensor; `copy=True` always copies, `copy=False` raises where a copy is needed.

    >>> import tensorgrad as torch
    >>> torch.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    if isinstance(obj, Storage):
        dtype = dtype or dtypes.uint8
        size = obj.nbytes() // dtype.itemsize
        obj, dtype = share(obj.strided((size,), (dtype.itemsize,), 0, dtype.numpy), obj), None
    shares = isinstance(obj, Tensor | np.ndarray)
    if copy is False and not shares:
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    made = as_tensor(obj, dtype, device)
    if copy and shares:
        made = made.detach().clone()
    if isinstance(obj, Tensor) and requires_grad != made.requires_grad:
        made = made.detach()
    return made.requires_grad_() if requires_grad and not made.requires_grad else made


def legacy_tensor(args: tuple, device) -> Tensor:
    """What `torch.Tensor(...)` makes: sizes give uninitialised memory, data is copied to the default dtype."""
    floating = dtypes.DEFAULT.floating
    if len(args) == 1 and isinstance(args[0], Tensor):
        return args[0].detach() if args[0].dtype is floating else args[0].to(floating)
    if len(args) == 1 and (
        isinstance(args[0], np.ndarray) or (isinstance(args[0], list | tuple) and not isinstance(args[0], Size))
    ):
        return finish(_array_of(args[0], floating), False, device)
    return empty(*args, dtype=floating, device=device)


# --- from shapes ---------------------------------------------------------------------------------------------------


def _filled(maker, value, shape, dtype, device, requires_grad, pin_memory) -> Tensor:
    """A tensor of one value, which NumPy makes with `maker` and a device fills in; uninitialised for None."""
    dtype = dtype or dtypes.DEFAULT.floating
    if dtype.__class__ is not dtypes.dtype:
        raise TypeError(f"argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    device = resolve_device(device)
    if requires_grad and dtype.category < dtypes.FLOATING:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if device.type == "cpu":
        array = maker(shape, dtype.numpy)
    elif device.type == "meta":
        array = storage_class(device).empty(shape, dtype.numpy, device)
    else:
        storage = storage_class(device)
        array = storage.empty(shape, dtype.numpy, device)
        if value is not None:
            storage.write(array, value)
    made = wrap(array)
    made._requires_grad = bool(requires_grad)
    return _pinned(made) if pin_memory else made


def _out(out, made: Tensor) -> Tensor:
    if out is None:
        return made
    from tensorgrad.ops import slowpath

    slowpath._store(out, made)
    return out


def _dtype_of(out: Tensor, dtype):
    """The dtype to make what `out` is to hold. Raises: RuntimeError if another one was asked for."""
    if dtype is not None and dtype is not out.dtype:
        from tensorgrad.ops.slowpath import spoken

        raise RuntimeError(f"dtype {spoken(dtype)} does not match dtype of out parameter ({spoken(out.dtype)})")
    return out.dtype


@composite("function")
def zeros(
    *size, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **named
) -> Tensor:
    """A tensor of zeros.

    >>> import tensorgrad as torch
    >>> torch.zeros(2, 2)
    tensor([[0., 0.],
            [0., 0.]])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype)
    shape = resolve_shape(given_size("zeros", size, named))
    return _out(out, _filled(np.zeros, 0, shape, dtype, device, requires_grad, pin_memory))


@composite("function")
def ones(
    *size, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **named
) -> Tensor:
    """A tensor of ones.

    >>> import tensorgrad as torch
    >>> torch.ones(2, 3)
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype)
    shape = resolve_shape(given_size("ones", size, named))
    return _out(out, _filled(np.ones, 1, shape, dtype, device, requires_grad, pin_memory))


@composite("function")
def empty(
    *size,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
    memory_format=None,
    **named,
) -> Tensor:
    """An uninitialised tensor: its values are whatever the memory held.

    >>> import tensorgrad as torch
    >>> torch.empty(2, 3).shape
    torch.Size([2, 3])
    """
    dtype = dtype if out is None else _dtype_of(out, dtype)
    shape = resolve_shape(given_size("empty", size, named))
    return _out(out, _filled(np.empty, None, shape, dtype, device, requires_grad, pin_memory))


def wrapped(value, dtype: dtypes.dtype):
    """A Python number as what an unsigned element makes of it: a negative one wraps."""
    if value.__class__ is bool or dtype.is_signed or dtype.category != dtypes.INTEGER:
        return value
    return int(value) % 2 ** (8 * dtype.itemsize)


@composite("function")
def full(
    size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """A tensor filled with one value; the dtype follows the value unless given.

    >>> import tensorgrad as torch
    >>> torch.full((2, 3), 7)
    tensor([[7, 7, 7],
            [7, 7, 7]])
    """
    fill_value = fill_value.item() if isinstance(fill_value, Tensor) else plain_number(fill_value)
    dtype = (dtype or dtypes.of_number(fill_value)) if out is None else _dtype_of(out, dtype)
    check_number(fill_value, dtype)
    value = wrapped(fill_value, dtype)
    shape = resolve_shape((size,))
    return _out(out, _filled(lambda s, d: np.full(s, value, d), value, shape, dtype, device, requires_grad, pin_memory))


def _like(name: str, function, fills: bool):
    """`zeros_like` from `zeros`: shape, dtype and device of another tensor, its strides too where it is dense."""

    def like(
        input: Tensor, *fill, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None, **kw
    ) -> Tensor:
        check_tensor(name, input)
        if kw:
            fill = (kw.pop("fill_value"),) if "fill_value" in kw and fills else fill
        made = function(
            tuple(input._array.shape), *fill, dtype=dtype or input.dtype, device=device or input.device,
            requires_grad=requires_grad,
        )  # fmt: skip
        array = input._array
        if array.__class__ is np.ndarray and array.ndim > 1 and not array.flags.c_contiguous and memory_format is None:
            # PyTorch keeps the layout of a dense tensor; an expanded one becomes dense in row order
            order = np.empty_like(array, order="C" if 0 in array.strides else "K")
            if order.strides != made._array.strides:
                fresh = order.astype(made._array.dtype, copy=False)
                fresh[...] = made._array
                made = share(fresh, made._storage.__class__.of(fresh))
                made._requires_grad = bool(requires_grad)
        return made

    like.__name__ = like.__qualname__ = name
    like.__doc__ = (
        f"`{function.__name__}` with the shape, dtype and device of `input`, unless another dtype or device is given."
    )
    return composite("function", name=name)(like)


zeros_like = _like("zeros_like", zeros, False)
ones_like = _like("ones_like", ones, False)
empty_like = _like("empty_like", empty, False)
full_like = _like("full_like", full, True)


def _new(name: str, function, example: str, printed: str):
    def new(self, *args, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False, **kw) -> Tensor:
        args = (kw.pop("size"), *args) if "size" in kw else args
        return function(
            *args, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad, **kw
        )

    new.__name__ = new.__qualname__ = name
    new.__doc__ = f"""`torch.{function.__name__}` with this tensor's dtype and device unless others are given.

    >>> import tensorgrad as torch
    >>> torch.ones(1, dtype=torch.float64).{name}({example})
    {printed}
    """
    composite("method", name=name)(new)


_new("new_zeros", zeros, "2", "tensor([0., 0.], dtype=torch.float64)")
_new("new_ones", ones, "2", "tensor([1., 1.], dtype=torch.float64)")
_new("new_empty", empty, "0, 3", "tensor([], size=(0, 3), dtype=torch.float64)")
_new("new_full", full, "(2,), 7", "tensor([7., 7.], dtype=torch.float64)")
_new("new_tensor", tensor, "[1, 2]", "tensor([1., 2.], dtype=torch.float64)")


@composite("method")
def new(self, *args, device=None) -> Tensor:
    """PyTorch's legacy constructor with this tensor's dtype: sizes, or data to copy.

    >>> import tensorgrad as torch
    >>> torch.zeros(1, dtype=torch.int64).new([1, 2]), torch.zeros(1).new(2, 3).shape
    (tensor([1, 2]), torch.Size([2, 3]))
    """
    if len(args) == 1 and isinstance(args[0], list | tuple | Tensor | np.ndarray) and not isinstance(args[0], Size):
        return tensor(args[0], dtype=self.dtype, device=device or self.device)
    return empty(*args, dtype=self.dtype, device=device or self.device)


@composite("function")
def arange(
    start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """`start, start + step, ...` up to but without `end`. Integers give int64, any float the default dtype.

    >>> import tensorgrad as torch
    >>> torch.arange(3), torch.arange(1, 2, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    if end is None:
        start, end = 0, start
    start, end, step = (v.item() if isinstance(v, Tensor | np.generic) else v for v in (start, end, step))
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if any(not math.isfinite(v) for v in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    whole = all(isinstance(v, int) for v in (start, end, step))
    if out is not None:
        dtype = _dtype_of(out, dtype)
    if dtype is None:
        dtype = dtypes.int64 if whole else dtypes.DEFAULT.floating
    if dtype is dtypes.int64:  # everything is truncated first
        start, end, step, whole = int(start), int(end), int(step), True
        if step == 0:
            raise ValueError("step must be nonzero")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if dtype.category >= dtypes.FLOATING:
        array = (start + step * np.arange(count, dtype=np.float64)).astype(dtype.numpy)
    else:
        array = (int(start) + int(step) * np.arange(count, dtype=np.int64)).astype(dtype.numpy)
    return _out(out, finish(array, requires_grad, device))


@composite("function", name="range")
def range_(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Like `arange`, with `end` included and always floating-point (deprecated in PyTorch).

    >>> import tensorgrad as torch
    >>> torch.range(1, 2, 0.5)
    tensor([1.0000, 1.5000, 2.0000])
    """
    if end is None:
        start, end = 0, start
    count = math.floor((end - start) / step) + 1
    array = (start + step * np.arange(count, dtype=np.float64)).astype((dtype or dtypes.DEFAULT.floating).numpy)
    return _out(out, finish(array, requires_grad, device))


@composite("function")
def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """`steps` evenly spaced values from `start` to `end`, both included.

    Each half is computed from its own end, as PyTorch does, so the result is symmetric.

    >>> import tensorgrad as torch
    >>> torch.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    start, end, steps, device = _ends("linspace", start, end, steps, device)
    if out is not None:
        dtype = _dtype_of(out, dtype)
    if dtype is None:
        default = dtypes.DEFAULT
        dtype = default.complex if isinstance(start, complex) or isinstance(end, complex) else default.floating
    array = _spaced(start, end, steps, dtype)
    if dtype.category < dtypes.FLOATING:
        array = np.trunc(array)
    return _out(out, finish(array.astype(dtype.numpy), requires_grad, device))


def _ends(name: str, start, end, steps, device):
    """Start, end and number of steps as Python numbers, and the device: a tensor's, unless given."""
    if not isinstance(steps, int | np.integer):
        steps = steps.item() if isinstance(steps, Tensor) else steps
        if not isinstance(steps, int):
            raise TypeError(
                f"{name}() received an invalid combination of arguments - got ({type(start).__name__}, "
                f"{type(end).__name__}, {type(steps).__name__}), but steps must be int"
            )
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
    """Evenly spaced values, not yet rounded to `dtype`; integers start and end on whole numbers."""
    work: np.dtype = np.dtype("float64")
    if dtype.category < dtypes.FLOATING:
        start, end = int(start), int(end)
        check_number(start, dtype)
        check_number(end, dtype)
    else:
        work = dtype.numpy if dtype.itemsize >= 4 else np.dtype("float32")
    if steps == 1:
        return np.full(1, start, work)
    begin, last = work.type(start), work.type(end)
    step = (last - begin) / work.type(max(steps - 1, 1))
    i = np.arange(steps).astype(work)
    return np.where(np.arange(steps) < steps // 2, begin + step * i, last - step * i[::-1])


@composite("function")
def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, device=None, requires_grad=False) -> Tensor:
    """`base` raised to `linspace(start, end, steps)`.

    >>> import tensorgrad as torch
    >>> torch.logspace(0, 3, 4)
    tensor([   1.,   10.,  100., 1000.])
    """
    start, end, steps, device = _ends("logspace", start, end, steps, device)
    dtype = (dtype or dtypes.DEFAULT.floating) if out is None else _dtype_of(out, dtype)
    whole = dtype.category < dtypes.FLOATING
    wide = dtypes.complex128 if dtype.category == dtypes.COMPLEX else dtypes.float64
    exponents = _spaced(start, end, steps, dtype if whole else wide)
    with np.errstate(all="ignore"):
        array = (base**exponents).astype(dtype.numpy)
    return _out(out, finish(array, requires_grad, device))


@composite("function")
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Ones on the diagonal, zeros elsewhere, `n` by `m` (by `n` unless given).

    >>> import tensorgrad as torch
    >>> torch.eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    for size in (n, n if m is None else m):
        if size < 0:
            raise RuntimeError(f"n must be greater or equal to 0, got {size}")
    dtype = dtype if out is None else _dtype_of(out, dtype)
    return _out(out, finish(np.eye(n, m, dtype=(dtype or dtypes.DEFAULT.floating).numpy), requires_grad, device))


@composite("function")
def scalar_tensor(s, *, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """A 0-dimensional tensor in the default dtype unless given. Raises: TypeError for what is no number.

    >>> import tensorgrad as torch
    >>> torch.scalar_tensor(2)
    tensor(2.)
    """
    if not isinstance(s, Tensor | np.generic | bool | int | float | complex):
        raise TypeError(f"scalar_tensor(): argument 's' (position 1) must be Number, not {type(s).__name__}")
    return tensor(s, dtype=dtype or dtypes.DEFAULT.floating, device=device, requires_grad=requires_grad)
