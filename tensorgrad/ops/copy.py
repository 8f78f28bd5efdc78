"""Copies and casts: `clone`, `to`, `copy_`, `contiguous`."""

from __future__ import annotations

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.ops import inplace
from tensorgrad.ops.create import resolve_device, tensor
from tensorgrad.ops.errors import check_number
from tensorgrad.ops.kinds import composite, op
from tensorgrad.storage.stubs import storage_class
from tensorgrad.tensor import Tensor


def _copied(xp, x, memory_format):
    """A fresh array: dense in the order of the strides, or C-contiguous when asked for."""
    if memory_format == "contiguous":
        return xp.array(x, order="C")
    return xp.array(x, order="K") if x.ndim < 2 or x.flags.c_contiguous else _keep_layout(xp, x)


def _keep_layout(xp, x):
    dense = xp.empty_like(x)  # NumPy's K order; an expanded array becomes dense in C order
    if 0 in x.strides:
        dense = xp.empty(x.shape, x.dtype)
    dense[...] = x
    return dense


_clone = op("clone_copy(input, memory_format: str)", _copied, input=lambda g: g, backward_name="CloneBackward0",
            kind="same shape", where="")  # fmt: skip


@composite()
def clone(input: Tensor, *, memory_format=None) -> Tensor:
    """A copy in fresh memory through which gradients flow.

    >>> import tensorgrad as torch
    >>> x = torch.zeros(2); y = x.clone(); y[0] = 1
    >>> x
    tensor([0., 0.])
    """
    return _clone(input, None if memory_format is None or "preserve" in str(memory_format) else "contiguous")


def _cast_kernel(xp, x, dtype):
    if x.dtype.kind == "c" and dtype.category < dtypes.COMPLEX:
        x = x.real
    if x.dtype.kind in "fV" and dtype.category == dtypes.INTEGER and dtype.itemsize < 8:
        with np.errstate(all="ignore"):
            return x.astype(np.int64).astype(dtype.numpy)  # wraps as PyTorch does, instead of saturating by chance
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy, order="C" if 0 in x.strides else "K")  # an expanded array becomes dense


_cast = op("to_copy(input, dtype: dtype)", _cast_kernel, input=lambda g: g, backward_name="ToCopyBackward0",
           kind="cast", where="")  # fmt: skip


def cast(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """`input` in another dtype; itself if it has that dtype already."""
    return input if input.dtype is dtype else _cast(input, dtype)


def _transfer(input: Tensor, device: devices.device) -> Tensor:
    """A copy on another device. (The gradient comes back by the same way.)"""
    from tensorgrad.autograd.function import Function

    class ToDevice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.device = x.device
            from tensorgrad.tensor import wrap

            return wrap(storage_class(device).from_host(x._storage.to_host(x._array), device))

        @staticmethod
        def backward(ctx, g):
            return g.to(ctx.device)

    return ToDevice.apply(input)


@composite("method")
def to(self: Tensor, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None) -> Tensor:
    """This tensor with another dtype and / or device: `to(dtype)`, `to(device, dtype)`, `to(other)`.

    Returns the tensor itself if nothing changes (unless `copy=True`).

    >>> import tensorgrad as torch
    >>> torch.ones(1, dtype=torch.int64).to(torch.float32)
    tensor([1.])
    """
    flags = [argument for argument in args if isinstance(argument, bool)]
    copy = flags[1] if len(flags) > 1 else copy
    for argument in args:
        if argument.__class__ is dtypes.dtype:
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype, device = argument.dtype, argument.device
        elif isinstance(argument, bool):
            pass  # non_blocking and copy, read above
        elif argument is not None:
            device = argument
    result = self
    if device is not None:
        device = resolve_device(device)
        own = self.device
        another = device.index is not None and device.index != own.index and own.index is not None
        if device.type != own.type or another:
            result = _transfer(result, device)
    if dtype is not None and result.dtype is not dtype:
        result = _cast(result, dtype)
    if memory_format is not None and "contiguous_format" in str(memory_format):
        result = contiguous(result)
    return result.clone() if copy and result is self else result


def _caster(name: str, dtype: dtypes.dtype) -> None:
    def method(self, memory_format=None) -> Tensor:
        return self if self.dtype is dtype else _cast(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"This tensor as {dtype}; itself if it is that already."
    composite("method", name=name)(method)


for _name in ("bool", "short", "int", "long", "half", "bfloat16", "float", "double", "cfloat", "cdouble"):
    _caster(_name, getattr(dtypes, _name))
_caster("byte", dtypes.uint8)
_caster("char", dtypes.int8)


@composite("method")
def cpu(self: Tensor, memory_format=None) -> Tensor:
    """This tensor in main memory."""
    return to(self, device="cpu")


@composite("method")
def cuda(self: Tensor, device=None, non_blocking=False, memory_format=None) -> Tensor:
    """This tensor on a CUDA device."""
    return to(self, device="cuda" if device is None else device)


@composite("method")
def contiguous(self: Tensor, memory_format=None) -> Tensor:
    """This tensor with its elements dense in row order; itself if they are."""
    return self if is_contiguous(self) else _clone(self, "contiguous")


@composite("method")
def is_contiguous(self: Tensor, memory_format=None) -> bool:
    """Whether the elements lie dense in row order (for `channels_last`: with the channels innermost)."""
    array = self._array
    if memory_format is not None and "channels_last" in str(memory_format):
        order = (0, *range(2, array.ndim), 1)
        return array.__class__ is np.ndarray and array.transpose(order).flags.c_contiguous
    return bool(array.flags.c_contiguous)


@composite("method")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor with the dtype and device of `other`."""
    return to(self, other)


@composite("method")
def type(self: Tensor, dtype=None, non_blocking=False):
    """PyTorch's legacy name of the tensor's type, or (with `dtype`) this tensor cast to it."""
    from tensorgrad.autograd.graph import _LEGACY

    if dtype is None:
        prefix = "torch." if self.is_cpu else f"torch.{self.device.type}."
        return f"{prefix}{_LEGACY[self.dtype.name]}Tensor"
    if isinstance(dtype, str):
        spoken = dtype.rpartition(".")[2].removesuffix("Tensor")
        found = [dtypes.BY_NAME[name] for name, legacy in _LEGACY.items() if legacy == spoken]
        if not found:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = found[0]
    return to(self, getattr(dtype, "dtype", dtype))


# --- writes --------------------------------------------------------------------------------------------------------


def _broadcast_copy(xp, x, src):
    out = xp.empty_like(x)
    src = src.real if src.dtype.kind == "c" and x.dtype.kind != "c" else src
    with np.errstate(all="ignore"):
        out[...] = src
    return out


_copy = op("copy(input, src)", _broadcast_copy, backward_name="CopyBackwards",
           input=lambda g: g.new_zeros(g._array.shape), src=lambda g: g,
           shape=lambda x, src: (x.shape, x.dtype), where="")  # fmt: skip


@composite("method")
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Writes `src`, broadcast and cast, into this tensor; gradients flow to `src`.

    Raises: RuntimeError if `src` does not broadcast to this tensor's shape.
    """
    if src.__class__ in dtypes.NUMBERS:
        src = tensor(src)
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {src.__class__.__name__}")
    if src._array.__class__ is not self._array.__class__:
        src = _transfer(src, self.device)
    check_broadcast(src._array.shape, self._array.shape)
    if inplace._tracked(self, (src,)) or self._storage.version is None:
        return inplace.replace(self, _copy, (src,), {})
    inplace.check_no_overlap(self)
    array = src._array
    if array.dtype.kind == "c" and self._array.dtype.kind != "c":
        array = array.real
    self._storage.bump()
    with np.errstate(all="ignore"):
        self._storage.write(self._array, array)
    return self


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


_fill = op("fill(input, value)", lambda xp, x, value: xp.full_like(x, value.astype(x.dtype)),
           input=lambda g: g.new_zeros(g._array.shape), value=lambda g: g.sum(),
           shape=lambda x, value: (x.shape, x.dtype), where="")  # fmt: skip


@composite()
def fill(input: Tensor, value) -> Tensor:
    """A tensor like `input` with every element `value`, a number or a 0-dimensional tensor."""
    return fill_(input.clone(), value)


@composite("method function")
def fill_(self: Tensor, value) -> Tensor:
    """Sets every element to `value`, a number or a 0-dimensional tensor."""
    return _fill_in_place(self, value)


def _fill_in_place(self: Tensor, value) -> Tensor:
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
        if inplace._tracked(self, (value,)):
            return inplace.replace(self, _fill, (value,), {})
        inplace.check_no_overlap(self)
        value = value.item()
    check_number(value, self.dtype)
    if inplace._tracked(self, ()) or self._storage.version is None:
        from tensorgrad.ops.create import tensor

        value = tensor(value, dtype=self.dtype, device=self.device)
        return inplace.replace(self, _fill, (value,), {}, overlap=True)
    self._storage.bump()
    with np.errstate(all="ignore"):
        self._storage.write(self._array, value)
    return self


@composite("method function")
def zero_(self: Tensor) -> Tensor:
    """Sets every element to 0."""
    return _fill_in_place(self, 0)
