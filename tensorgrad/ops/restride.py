"""Arbitrary strides over a tensor's storage (`as_strided`), and in-place changes of a tensor's shape (`t_`)."""

from __future__ import annotations

import inspect
import math

from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.views import check_writable, keep_retaining
from tensorgrad.dispatch import inplace, signatures
from tensorgrad.dispatch.kinds import composite, export, op, view
from tensorgrad.dispatch.resizing import resize as resize_memory
from tensorgrad.errors import as_integer, warn, wrong_argument
from tensorgrad.layouts import channels_last, channels_last_3d, memory_strides
from tensorgrad.ops.create import unset
from tensorgrad.ops.join import cat
from tensorgrad.ops.shape import ints, squeeze_method, t, transpose_view, unsqueeze_view
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.settings import SETTINGS
from tensorgrad.storage.sparse import COOArray
from tensorgrad.tensor import Tensor, reshape_in_place
from tensorgrad.transforms.batch import BatchedArray


def _for_each(row, g, size, stride, delta, geometry):
    """A gradient of `as_strided` on values with a batch: each sample has a part of the memory of its own."""
    count, (shape, own) = g.shape[0], geometry
    reach = [sum((n - 1) * s for n, s in zip(*pair, strict=True) if n) for pair in ((size, stride), (shape, own))]
    apart = max(delta + reach[0], reach[1]) - min(delta, 0) + 1
    return row(g, (count, *size), (apart, *stride), delta, ((count, *shape), (apart, *own)))


_strided = view("as_strided(input, size: shape, stride: shape, delta: int, geometry: any)", "shape.strided_view",
                where=(),
                input=lambda g, size, stride, delta, geometry:
                _strided_grad(g, size, stride, delta, geometry))  # fmt: skip
_strided_grad = op("as_strided_grad(g, size: any, stride: any, delta: int, geometry: any)", "shape.strided_view_grad",
                   linear="g", batch=lambda g, size, stride, delta, geometry:
                   _for_each(_strided_grad, g, size, stride, delta, geometry),
                   g=lambda g, size, stride, delta, geometry: _strided_again(g, size, stride, delta, geometry),
                   shape=lambda g, size, stride, delta, geometry: (geometry[0], g.dtype), where=())  # fmt: skip
_strided_again = op("as_strided_again(g, size: any, stride: any, delta: int, geometry: any)",
                    "shape.strided_view_again", linear="g",
                    batch=lambda g, size, stride, delta, geometry:
                    _for_each(_strided_again, g, size, stride, delta, geometry),
                    g=lambda g, size, stride, delta, geometry: _strided_grad(g, size, stride, delta, geometry),
                    shape=lambda g, size, stride, delta, geometry: (size, g.dtype), where=())  # fmt: skip


@composite()
def as_strided(input: Tensor, size, stride, storage_offset: int | None = None) -> Tensor:
    """Returns a view of the storage with the given shape, strides (in elements) and storage offset.

    Args:
        size, stride: as many integers each as the view has dimensions; strides are not negative.
        storage_offset: the first element in the storage; by default that of `input`.

    Raises:
        RuntimeError: If the view would extend beyond the storage.

    >>> torch.as_strided(torch.arange(6), (2, 2), (1, 2))
    tensor([[0, 2],
            [1, 3]])
    """
    for name, given in (("size", size), ("stride", stride)):
        if isinstance(given, int):
            raise wrong_argument(given, name, "tuple of ints")
    size, stride = ints(size), ints(stride)
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    own = input.storage_offset()
    offset = own if storage_offset is None else as_integer(storage_offset, "storage_offset")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    array, storage = input._array, input._storage
    if 0 not in size:
        needed = (offset + 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))) * array.itemsize
        if needed > storage.nbytes():
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
                f"{array.itemsize} requiring a storage size of {needed} are out of bounds for storage of size "
                f"{storage.nbytes()}"
            )
    result = _strided(input, size, stride, offset - own, (array.shape, input.stride()))
    if input._view is not None and result._view is not None:  # depends on the storage only, not on other views
        base, _, *rest = result._view
        geometry = (size, stride, offset - base.storage_offset(), (base._array.shape, base.stride()))
        result._view = (base, (None, _strided.op, geometry), *rest)
    return result


# --- in-place changes of shape ---------------------------------------------------------------------------------------


def _in_place(name: str, function) -> None:
    operator = "transpose_" if function is transpose_view else name  # also that of `swapaxes_`

    def method(self, *args, **kwargs):
        if DISPATCH and LOCAL.dispatch_modes:
            asked = DISPATCH[0](getattr(Tensor, operator, method), (self, *args), kwargs)
            if asked is not NotImplemented:
                return asked
        if GRAD.enabled and self.requires_grad:
            check_writable(self)
        result = function(self, *args, **kwargs)
        if result._array.__class__ is not self._array.__class__:
            raise RuntimeError(f"torch.{name}: in-place transposition is not supported for {self.layout} layout")
        if self._view is None or self._requires_grad is True:
            reshape_in_place(self)
        self._array, old = result._array, self._edge
        if self._view is not None:  # keeps the grad mode of its creation
            self._view, self._edge = (*result._view[:3], self._view[3]), result._edge
        elif result._edge is not None:
            self._edge, self._requires_grad = result._edge, True
        keep_retaining(self, old, self._edge)
        self._storage.bump()
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"In-place version of `{function.__name__}`: changes the shape of this tensor itself."
    signatures.promise(method, lambda: signatures.in_place(inspect.signature(function)))
    export(name, method, "method")


for _name, _function in (
    ("squeeze", squeeze_method), ("unsqueeze", unsqueeze_view), ("t", t), ("transpose", transpose_view),
    ("swapaxes", transpose_view), ("swapdims", transpose_view), ("as_strided", as_strided),
):  # fmt: skip
    _in_place(f"{_name}_", _function)
export("as_strided_", Tensor.as_strided_, "function")


def _resize_each(self: Tensor, size: tuple) -> Tensor:
    """`resize_` of each sample of a batch (vmap)."""
    flat, count = self.reshape(-1), math.prod(size)
    if count > flat.numel():
        flat = cat([flat, flat.new_empty(count - flat.numel())])
    made = flat[:count].reshape(size)
    self._array, self._memory = made._array, made._storage
    self._storage.bump()
    return self


@composite("method")
def resize_(self: Tensor, *sizes, memory_format=None) -> Tensor:
    """Changes the shape in place. Existing memory is kept as far as it reaches; new memory is uninitialized.

    Where the memory grows it moves, and with it all tensors that share it (NumPy arrays keep the old one).

    Raises:
        RuntimeError: If the tensor requires grad, or the new rank does not support the memory format.

    >>> x = torch.arange(4)
    >>> x.resize_(3)
    tensor([0, 1, 2])
    """
    if self.requires_grad and not GRAD.inference:
        raise RuntimeError("cannot resize variables that require grad")
    size = ints(sizes)
    asked = inplace.asked(resize_, self, list(size)) if DISPATCH and memory_format is None else NotImplemented
    if asked is not NotImplemented:
        return asked
    if any(n < 0 for n in size):
        raise RuntimeError(f"requested resize to {list(size)}, but sizes must not be negative")
    array = self._array
    if memory_format is None and size == array.shape:
        return self
    if array.__class__ is BatchedArray:
        return _resize_each(self, size)
    strides = tuple(s * array.itemsize for s in memory_strides(size, memory_format))
    if math.prod(size) * array.itemsize >= 2**63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)}")
    if any(s >= 2**63 for s in strides):
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(size)}")
    if size == array.shape and strides == array.strides:
        return self
    del array  # which would count as a user of the memory
    start = resize_memory(self, size, strides)
    memory = self._storage
    if start >= 0 and SETTINGS.deterministic and SETTINGS.fill_memory:
        dtype = self._array.dtype
        new = ((memory.nbytes() - start) // dtype.itemsize,)
        memory.write(memory.strided(new, (dtype.itemsize,), start, dtype), unset(self.dtype))
    memory.bump()
    return self


@composite()
def resize_as_(self: Tensor, the_template: Tensor, *, memory_format=None) -> Tensor:
    """Changes the shape in place to that of another tensor.

    >>> torch.arange(4).resize_as_(torch.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    if isinstance(self._array, COOArray):
        return self.resize_as_sparse_(the_template)
    if memory_format is not None and "preserve" in str(memory_format):
        others = (f for f in (channels_last, channels_last_3d) if the_template.is_contiguous(memory_format=f))
        memory_format = None if the_template.is_contiguous() else next(others, None)
    return resize_(self, the_template._array.shape, memory_format=memory_format)


def _deprecated_resize(name: str, self: Tensor, size: tuple) -> Tensor:
    warn(f"non-inplace {name} is deprecated")
    if math.prod(size) != self._array.size:
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, size))} ({math.prod(size)} elements in total), but the given "
            f"tensor has a size of {'x'.join(map(str, self._array.shape))} ({self._array.size} elements). autograd's "
            "resize can only change the shape of a given tensor, while preserving the number of elements."
        )
    return self.contiguous().view(size)


@composite("method")
def resize(self: Tensor, *sizes) -> Tensor:
    """Returns the tensor in another shape with as many elements (deprecated: use `reshape`).

    >>> torch.arange(4).resize(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    return _deprecated_resize("resize", self, ints(sizes))


@composite("method")
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Returns the tensor in the shape of another tensor with as many elements (deprecated: use `reshape_as`).

    >>> torch.arange(4).resize_as(torch.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return _deprecated_resize("resize_as", self, tensor._array.shape)


@composite()
def slice_inverse(input: Tensor, src: Tensor, dim: int = 0, start=None, end=None, step: int = 1) -> Tensor:
    """Returns the view of `input`'s memory with the geometry of `src`, where `input` is a slice of that geometry.

    The other arguments define the slice.

    Raises:
        RuntimeError: If `input` has less memory than `src` needs.

    >>> x = torch.arange(6.0)
    >>> torch.slice_inverse(x[1:3], x, 0, 1, 3)
    tensor([0., 1., 2., 3., 4., 5.])
    """
    return as_strided(input, src._array.shape, src.stride(), src.storage_offset())
