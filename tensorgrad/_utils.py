"""What programs take from PyTorch's `torch._utils`, though its name is private."""

from __future__ import annotations

from collections.abc import Iterable

import tensorgrad as torch
from tensorgrad.dtypes import dtype as _dtype
from tensorgrad.tensor import Tensor


def _element_size(dtype: _dtype) -> int:
    """The bytes of one element. Raises: RuntimeError for what is no dtype."""
    if not isinstance(dtype, _dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors of one dtype, one after another in a vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The parts of a vector in the shapes of `tensors`, as views."""
    tensors = list(tensors)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))


def _rebuild_tensor(storage, storage_offset: int, size, stride) -> Tensor:
    """A tensor over a typed storage; offset and strides in elements."""
    return torch.empty(0, dtype=storage.dtype).set_(storage, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None) -> Tensor:
    """A tensor over a typed storage, as PyTorch's files name it."""
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)
