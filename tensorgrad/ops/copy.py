"""Copies and casts: `clone`, `to`, `copy_`, `contiguous`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.memory_formats import format_of
from tensorgrad.dispatch.out import check_apart
from tensorgrad.dispatch.promotion import plain_number
from tensorgrad.dtypes import COMPLEX_KINDS, scalar_type
from tensorgrad.errors import (
    SHORT_MAX,
    SHORT_MIN,
    check_flags,
    check_is_number,
    check_number,
    invalid_combination,
    wrong_argument,
)
from tensorgrad.kernels.array import pointwise
from tensorgrad.kernels.array import rearrange as kernels
from tensorgrad.layouts import check_memory_format, contiguous_format, made_in_order, memory_strides, preserve_format
from tensorgrad.ops.create import resolve_device, tensor, wrapped
from tensorgrad.overriding import function_classes
from tensorgrad.rows.strides import order_of_copy
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.storage.fresh import copied
from tensorgrad.storage.sparse import CompressedArray
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.storage.wide import wide
from tensorgrad.system.float_errors import ignored
from tensorgrad.tensor import PLAIN, Tensor, wrap


def _copied(xp, x, memory_format):
    """Makes a copy: dense in the order of the strides, row-major, or with the channels innermost."""
    if memory_format == "contiguous":
        return copied(x, None, "C") if xp is np else xp.array(x, order="C")
    if memory_format is not None:
        inside = range(2, x.ndim)
        return xp.array(x.transpose(0, *inside, 1), order="C").transpose(0, x.ndim - 1, *(d - 1 for d in inside))
    if x.ndim < 2 or x.flags.c_contiguous:
        return copied(x) if xp is np else xp.array(x, order="K")
    return _keep_layout(xp, x)


def _keep_layout(xp, x):
    dense = kernels.dense_like(xp, x)
    dense[...] = x
    return dense


def _copied_on_meta(x, memory_format):
    """The meta version of `_copied`: computes its shape and strides."""
    order = order_of_copy(x) if memory_format is None else range(x.ndim)
    if memory_format == "channels_last":
        order = (0, *range(2, x.ndim), 1)
    return made_in_order(lambda shape: x.empty(shape, x.dtype), x.shape, order)


def _clone_of_batch(input, memory_format):
    if memory_format != "channels_last":
        return _clone(input, memory_format)
    last = input.ndim - 1  # (batch, N, C, ...): the channels are innermost
    return _clone(input.permute(0, 1, *range(3, last + 1), 2), "contiguous").permute(0, 1, last, *range(2, last))


_clone = op("clone_copy(input, memory_format: str)", _copied, linear="input", input=lambda g: g,
            batch=_clone_of_batch, backward_name="CloneBackward0",
            shape=_copied_on_meta, where=())  # fmt: skip


@composite()
def clone(input: Tensor, *, memory_format=None) -> Tensor:
    """Returns a copy in new memory; gradients flow through it.

    >>> x = torch.zeros(2); y = x.clone(); y[0] = 1
    >>> x
    tensor([0., 0.])
    """
    return _clone(input, _format_of(input, memory_format))


def _format_of(input: Tensor, memory_format) -> str | None:
    """Returns the format for `clone`'s kernel. Raises: RuntimeError for channels_last on a tensor of another rank."""
    if memory_format is None:
        return None
    check_memory_format(memory_format)
    name = str(memory_format)
    if "preserve" in name:
        return None
    if "channels_last" not in name:
        return "contiguous"
    rank = 5 if "3d" in name else 4
    if input._array.ndim != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {name.removeprefix('torch.')} format")
    return "channels_last"


def _cast_kernel(xp, x, dtype):
    order = "C" if 0 in x.strides else "K"  # expanded arrays become dense
    wanted = dtype.numpy  # (first: it may change how the storage converts)
    return STORAGES[x.__class__].cast(x, wanted, order)


_cast = op("to_copy(input, dtype: dtype)", _cast_kernel, input=lambda g: g, backward_name="ToCopyBackward0",
           kind="cast", where=())  # fmt: skip


def cast(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """Casts `input` to another dtype; returns it unchanged if it already has that dtype."""
    return input if input.dtype is dtype else _cast(input, dtype)


def _sent(source: Storage, array, device: devices.device, non_blocking: bool):
    """Copies an array to another device: directly if either side supports it, else through the host."""
    target = storage_class(device)
    if hasattr(source, "send"):
        return source.send(array, device, non_blocking)
    if hasattr(target, "receive"):
        return target.receive(source.to_host(array), device, non_blocking)
    return target.from_host(source.to_host(array), device)


def _transfer(input: Tensor, device: devices.device, non_blocking: bool = False) -> Tensor:
    """Copies a tensor to another device; the gradient is copied back the same way."""
    if not (input._requires_grad and GRAD.enabled) and not LOCAL.transforms:
        return wrap(_sent(input._storage, input._array, device, non_blocking))
    from tensorgrad.autograd.function import Function

    class ToDevice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.device = x.device
            return wrap(_sent(x._storage, x._array, device, non_blocking))

        @staticmethod
        def backward(ctx, g):
            return g.to(ctx.device)

        @staticmethod
        def jvp(ctx, t):
            return t.to(device)

    return ToDevice.apply(input)


def _destination(given: tuple, dtype, device) -> tuple[Any, Any, list]:
    """Reads what `to` is given by position: a dtype, or a tensor, or a device and maybe a dtype; then flags. Returns
    dtype, device and flags. Raises: TypeError for anything else."""
    first, *flags = given
    if first.__class__ is dtypes.dtype or first in dtypes.NUMBERS:
        dtype = first
    elif isinstance(first, Tensor):
        dtype, device = first.dtype, first.device
    else:
        if isinstance(first, bool):
            raise wrong_argument(first, "device", "torch.device")
        device = device if first is None else first
        second = flags.pop(0) if flags else None
        if second is not None and second.__class__ is not dtypes.dtype and second not in dtypes.NUMBERS:
            raise wrong_argument(second, "dtype", "torch.dtype")
        dtype = dtype if second is None else second
    if len(flags) > 2:
        raise invalid_combination("to", f"{len(given)} arguments by position")
    return dtype, device, flags


@composite("method")
def to(self: Tensor, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None) -> Tensor:
    """Converts this tensor to another dtype and/or device: `to(dtype)`, `to(device, dtype)`, `to(other)`.

    Returns the tensor itself if nothing changes, unless `copy=True`.

    Args:
        non_blocking: whether a copy from pinned memory to a GPU may go on in the background.
        copy: whether to copy even if nothing changes.

    >>> torch.ones(1, dtype=torch.int64).to(torch.float32)
    tensor([1.])
    """
    if non_blocking is not False or copy is not False:
        check_flags(non_blocking=non_blocking, copy=copy)
    if args:
        dtype, device, flags = _destination(args, dtype, device)
        if flags:
            check_flags(**dict(zip(("non_blocking", "copy"), flags)))
            non_blocking, copy = (*flags, *(non_blocking, copy)[len(flags) :])
    result = self
    if device is not None:
        device = resolve_device(device)
        own = self.device
        if device.type == own.type and device.index is None and STORAGES[self._array.__class__].several:
            device = self._storage.current_device()
        another = device.index is not None and device.index != own.index and own.index is not None
        if device.type != own.type or another:
            result = _transfer(result, device, non_blocking)
    if dtype is not None and result.dtype is not dtype:
        result = cast(result, dtypes.as_dtype(dtype, "to"))
    if memory_format is not None:
        check_memory_format(memory_format)
        if not copy or result is not self:
            result = _in_format(self, result, memory_format)
        elif memory_format is not preserve_format:
            return result.clone(memory_format=memory_format)
    return result.clone() if copy and result is self else result


def _in_format(self: Tensor, result: Tensor, memory_format) -> Tensor:
    """What a cast returns for a memory format: nothing else for the tensor itself if PyTorch sees that format in it."""
    if memory_format is preserve_format:
        return result
    if result is self and memory_format is (format_of(self._array.shape, self._array.strides) or contiguous_format):
        return self
    return contiguous(result, memory_format)


def _caster(name: str, dtype: dtypes.dtype) -> None:
    def method(self, memory_format=None) -> Tensor:
        result = self if self.dtype is dtype else _cast(self, dtype)
        return result if memory_format is None else _in_format(self, result, memory_format)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Casts this tensor to {dtype}; returns it unchanged if it already has that dtype.

    >>> torch.ones(2).{name}().dtype{"  # needs the package ml_dtypes" if name == "bfloat16" else ""}
    {dtype}
    """
    composite("method", name=name)(method)


for _name in ("bool", "short", "int", "long", "half", "bfloat16", "float", "double", "chalf", "cfloat", "cdouble"):
    _caster(_name, getattr(dtypes, _name))
_caster("byte", dtypes.uint8)
_caster("char", dtypes.int8)


@composite("method")
def cpu(self: Tensor, memory_format=None) -> Tensor:
    """Returns this tensor on the CPU.

    >>> torch.ones(2).cpu().device
    device(type='cpu')
    """
    return to(self, device="cpu")


@composite("method")
def cuda(self: Tensor, device=None, non_blocking=False, memory_format=None) -> Tensor:
    """Returns this tensor on a CUDA device: `device`, or the current one if it is not given.

    Args:
        non_blocking: whether a copy from pinned memory may go on in the background.

    Raises:
        RuntimeError: If no CUDA device is available.

    >>> x = torch.ones(2)
    >>> x = x.cuda() if torch.cuda.is_available() else x
    """
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


@composite("method")
def contiguous(self: Tensor, memory_format=None) -> Tensor:
    """Returns this tensor with its elements dense in row-major order, or in the order given by `memory_format`.

    Returns the tensor itself if it already has that layout.

    Raises:
        RuntimeError: If tensors of this rank do not support the memory format.

    >>> x = torch.tensor([[1, 2], [3, 4]]).t()
    >>> x.stride(), x.contiguous().stride()
    ((1, 2), (2, 1))
    """
    return self if is_contiguous(self, memory_format) else clone(self, memory_format=memory_format or "contiguous")


@composite("method")
def is_contiguous(self: Tensor, memory_format=None) -> bool:
    """Returns whether the elements are dense in row-major order (for `channels_last`, with the channels innermost).

    >>> x = torch.zeros(2, 3)
    >>> x.is_contiguous(), x.t().is_contiguous(), x[:, 1].is_contiguous()
    (True, False, False)
    """
    array = self._array
    if memory_format is not None:
        check_memory_format(memory_format)
    if memory_format is not None and "channels_last" in str(memory_format):
        if array.ndim != (5 if "3d" in str(memory_format) else 4):
            return False
        step = array.itemsize
        for d in (1, *range(array.ndim - 1, 1, -1), 0):  # as in PyTorch, even for empty tensors
            if array.shape[d] != 1 and array.strides[d] != step:
                return False
            step *= array.shape[d]
        return True
    return bool(array.flags.c_contiguous)


def in_format_of(input: Tensor, result: Tensor) -> Tensor:
    """Returns `result` in channels_last layout if the input has that layout."""
    given = format_of(input._array.shape, input._array.strides)
    if given is None or result.stride() == memory_strides(result._array.shape, given):
        return result
    return clone(result, memory_format=given)


@composite("method")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Returns this tensor with the dtype and device of `other`.

    Args:
        other: a tensor of any shape.

    >>> torch.tensor([1.7, -2.0]).type_as(torch.tensor(0))
    tensor([ 1, -2])
    """
    return to(self, other)


@composite("method")
def type(self: Tensor, dtype=None, non_blocking=False):
    """Returns PyTorch's legacy type name of the tensor or, given `dtype`, this tensor cast to it.

    Args:
        dtype: a dtype, or such a name; None to return it.
        non_blocking: as in `to`.

    >>> torch.ones(1).type(), torch.ones(1).type(torch.int64)
    ('torch.FloatTensor', tensor([1]))
    """
    if dtype is None:
        prefix = "torch." if self.is_cpu else f"torch.{self.device.type}."
        prefix += "sparse." * self.is_sparse
        return f"{prefix}{scalar_type(self)}Tensor"
    if isinstance(dtype, str):
        wanted = dtype.rpartition(".")[2].removesuffix("Tensor")
        found = [dtypes.BY_NAME[name] for name, legacy in dtypes.SCALAR_TYPES.items() if legacy == wanted]
        if not found:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = found[0]
    return to(self, getattr(dtype, "dtype", dtype))


# --- writes --------------------------------------------------------------------------------------------------------


def _for_target(xp, array, target):
    """What is written of an array: where there are no complex numbers, their real parts, or whether they are not 0."""
    if array.dtype.kind not in COMPLEX_KINDS or target.dtype.kind in COMPLEX_KINDS:
        return array
    return wide(array) if target.dtype.kind == "b" else pointwise.real_part(xp, array)


def _broadcast_copy(xp, x, src):
    out = xp.empty_like(x)
    src = _for_target(xp, src, x)
    with ignored():
        out[...] = src
    return out


def _copy_in_batch(input, src, size, mapped):
    if "input" not in mapped:
        input = input.expand(size, *input.shape)
    for _ in range(input.ndim - src.ndim if "src" in mapped else 0):
        src = src.unsqueeze(1)
    return _copy(input, src)


_copy = op("copy(input, src)", _broadcast_copy, linear="src", batch=_copy_in_batch, backward_name="CopyBackwards",
           input=lambda g: g.new_zeros(g._array.shape), src=lambda g: g,
           shape=lambda x, src: (x.shape, x.dtype), where=())  # fmt: skip


@composite("method")
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies `src`, broadcast and cast, into this tensor in place; gradients flow to `src`.

    Args:
        src: a tensor of any dtype and device.
        non_blocking: whether a copy between pinned memory and a GPU may go on in the background.

    Raises:
        RuntimeError: If `src` cannot be broadcast to this tensor's shape.

    >>> x = torch.zeros(2, 2)
    >>> x.copy_(torch.tensor([1, 2]))
    tensor([[1., 2.],
            [1., 2.]])
    """
    if src.__class__ in PLAIN and inplace.writable(self) and inplace.readable(src):
        array, values = self._array, src._array
        if src._memory is not None and src._memory is self._memory:
            check_broadcast(values.shape, array.shape)
            check_apart(self, src)
        if values.dtype is array.dtype and values.shape == array.shape:
            self._storage.bump()
            self._storage.write(array, values)
            return self
    asked = inplace.asked(copy_, self, src)
    if asked is not NotImplemented:
        return asked
    if (isinstance(src, Tensor) and src.is_nested) or function_classes.overrides(src):
        return function_classes.call(copy_, (src.__class__,), (self, src), {})
    src = inplace.as_stored(self, src)
    if src.__class__ in dtypes.NUMBERS:
        src = tensor(src)
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {src.__class__.__name__}")
    if (src._array.__class__ is not self._array.__class__ and _elsewhere(src, self)) or (
        self._storage.several and src.device != self.device
    ):
        if src.device == self.device and not self._storage.several:
            _refuse_layouts(self, src)
        if non_blocking and _queue_copy(self, src):
            return self
        src = _transfer(src, self.device, non_blocking and not self.is_cpu)  # the host reads it immediately
    check_broadcast(src._array.shape, self._array.shape)
    if inplace._tracked(self, (src,)) or self._storage.version is None:
        if self._array.dtype.kind in "biu":  # integers have no gradients
            src = src.detach()
        return inplace.replace(self, _copy, (src,), {}, overlap=_same_elements(self, src))
    if not _same_elements(self, src):
        inplace.check_no_overlap(self)
    array = _for_target(np, src._array, self._array)
    self._storage.bump()
    with ignored():
        self._storage.write(self._array, array)
    return self


def _same_elements(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same elements in the same memory: a copy of one to the other changes nothing."""
    x, y = a._array, b._array
    return a._memory is not None and a._memory is b._memory and x.shape == y.shape and a.stride() == b.stride() and (
        a.storage_offset() == b.storage_offset())  # fmt: skip


def _elsewhere(src: Tensor, target: Tensor) -> bool:
    """Whether tensors whose arrays differ in class differ in device or layout, not only in that one has a batch."""
    layouts = STORAGES[src._array.__class__].layout, STORAGES[target._array.__class__].layout
    return src.device != target.device or layouts[0] is not layouts[1]


def _refuse_layouts(target: Tensor, src: Tensor) -> None:
    """Raises: RuntimeError, in PyTorch's words, since `copy_` does not convert from one layout to another."""
    if target.is_sparse + src.is_sparse == 1 and not any(isinstance(x._array, CompressedArray) for x in (target, src)):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{target.type()} and src type = {src.type()}"
        )
    raise RuntimeError(
        "torch.copy_: copy of sparse compressed tensors having different layouts is not supported. self layout is "
        f"{target.layout} and src layout is {src.layout}"
    )


def _begun(source: Storage, array, target) -> bool:
    return hasattr(source, "fetch") and source.fetch(array, target)


def _queue_copy(target: Tensor, src: Tensor) -> bool:
    """Queues a copy to the host. Returns False, having done nothing, if it cannot be queued."""
    x, y = target._array, src._array
    if x.dtype != y.dtype or x.shape != y.shape or inplace._tracked(target, (src,)) or not _begun(src._storage, y, x):
        return False
    target._storage.bump()
    return True


def check_broadcast(shape: tuple, target: tuple) -> None:
    """Raises: RuntimeError unless `shape` broadcasts to `target`."""
    if shape != target:
        offset = len(target) - len(shape)
        for i, n in enumerate(shape):
            m = target[offset + i] if offset + i >= 0 else 1
            if n not in (1, m):
                raise RuntimeError(
                    f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton dimension "
                    f"{max(offset + i, 0)}: cannot copy shape {list(shape)} into {list(target)}"
                )
        if offset < 0:
            raise RuntimeError(f"output with shape {list(target)} doesn't match the broadcast shape {list(shape)}")


def _fill_in_batch(input, value, size, mapped):
    return _copy_in_batch(input, value, size, {*mapped, "src"}) if "value" in mapped else _fill(input, value)


_fill = op("fill(input, value)", lambda xp, x, value: xp.full_like(x, value.astype(x.dtype)), linear="value",
           batch=lambda input, value, size, mapped: _fill_in_batch(input, value, size, mapped),
           input=lambda g: g.new_zeros(g._array.shape), value=lambda g: g.sum(),
           shape=lambda x, value: (x.shape, x.dtype), where=())  # fmt: skip


@composite()
def fill(input: Tensor, value) -> Tensor:
    """Returns a tensor like `input` with every element set to `value`, a number or a 0-dimensional tensor.

    >>> torch.fill(torch.zeros(2), 7)
    tensor([7., 7.])
    """
    return fill_(input.clone(), value)


@composite("method", "function")
def fill_(self: Tensor, value) -> Tensor:
    """Sets every element to `value`, a number or a 0-dimensional tensor, in place.

    Args:
        value: what is written, cast to this tensor's dtype.
    """
    asked = inplace.asked(fill_, self, value) if DISPATCH else NotImplemented
    return _fill_in_place(self, value) if asked is NotImplemented else asked


def _fill_in_place(self: Tensor, value) -> Tensor:
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
        if inplace._tracked(self, (value,)):
            return inplace.replace(self, _fill, (value,), {}, apart=False)
        inplace.check_no_overlap(self)
        value = value.item()
    if value.__class__ is not float and not (value.__class__ is int and SHORT_MIN <= value <= SHORT_MAX):
        value = plain_number(value)
        check_is_number(value, "value")
    check_number(value, self.dtype)
    if self._array.dtype.kind == "f" and inplace.readable(self) and value.__class__ is not complex:
        self._storage.bump()
        self._array.fill(value)
        return self
    value = wrapped(value, self.dtype)
    if inplace._tracked(self, ()) or self._storage.version is None:
        from tensorgrad.ops.create import tensor

        value = tensor(value, dtype=self.dtype, device=self.device)
        return inplace.replace(self, _fill, (value,), {}, overlap=True)
    self._storage.bump()
    array = self._array
    with ignored():
        if isinstance(array, CompressedArray):  # PyTorch fills what is stored
            array.values[...] = value
        else:
            self._storage.write(array, value)
    return self


@composite("method", "function")
def zero_(self: Tensor) -> Tensor:
    """Sets every element to 0 in place.

    >>> x = torch.tensor([1.0, 2.0])
    >>> x[:1].zero_()
    tensor([0.])
    >>> x
    tensor([0., 2.])
    """
    asked = inplace.asked(zero_, self) if DISPATCH else NotImplemented
    if asked is not NotImplemented:
        return asked
    array = self._array
    if array.__class__ is not np.ndarray and isinstance(array, CompressedArray) and not self.requires_grad:
        self._storage.bump()
        array.take(array.zeros())  # nothing is stored then
        return self
    if array.dtype.kind == "V" and array.dtype.names is not None:
        self.view(dtypes.uint16 if array.itemsize == 2 else dtypes.uint8).zero_()
        return self
    return _fill_in_place(self, 0)


@composite("method")
def fill_diagonal_(self: Tensor, fill_value, wrap: bool = False) -> Tensor:
    """Sets the elements on the main diagonal, whose indices are all equal, to a number.

    With `wrap`, the diagonal of a tall matrix starts again below its end, one row further down.

    Raises:
        RuntimeError: If there are fewer than two dimensions, or more than two that are not all equal.

    >>> torch.zeros(2, 3).fill_diagonal_(5)
    tensor([[5., 0., 0.],
            [0., 5., 0.]])
    """
    shape, stride = self._array.shape, self.stride()
    if isinstance(fill_value, Tensor):
        if fill_value.ndim or fill_value.requires_grad:
            raise TypeError("fill_diagonal_(): argument 'fill_value' (position 1) must be Number, not Tensor")
        fill_value = fill_value.item()
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    height, width = shape[0], min(shape)
    blocks = (height + 1) // (width + 1) if wrap and len(shape) == 2 and width else 1
    parts = [(blocks, width)]
    if blocks * (width + 1) < height and wrap and len(shape) == 2 and width:
        parts.append((1, height - blocks * (width + 1)))
    row, offset = 0, self.storage_offset()
    for count, length in parts:
        start = offset + row * stride[0]
        view = self.as_strided((count, length), ((width + 1) * stride[0], sum(stride)), start)
        _fill_in_place(view, fill_value)
        row += count * (width + 1)
    return self


# --- detaching and loading -----------------------------------------------------------------------------------------


@composite("function")
def detach(input: Tensor) -> Tensor:
    """Returns a tensor that shares memory and version counter but is detached from the graph.

    >>> torch.detach(torch.ones(2, requires_grad=True))
    tensor([1., 1.])
    """
    return input.detach()


@composite("function")
def detach_(input: Tensor) -> Tensor:
    """Detaches the tensor from the graph in place.

    Raises:
        RuntimeError: If the tensor is a view.
    """
    return input.detach_()


@composite("method")
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """Returns the tensor with which `Module.load_state_dict` replaces this one, detached from the graph.

    This is `other` if `assign` is true, else this tensor with the values of `other`.

    >>> torch.zeros(2).module_load(torch.tensor([1, 2]))
    tensor([1., 2.])
    """
    return other.detach() if assign else copy_(self, other).detach()
