"""The parts of PyTorch's private `torch._utils` that programs use anyway."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.dtypes import dtype as _dtype
from tensorgrad.layouts import layout as _layout
from tensorgrad.tensor import Tensor


def _element_size(dtype: _dtype) -> int:
    """The size of one element in bytes. Raises: RuntimeError if `dtype` is not a dtype."""
    if not isinstance(dtype, _dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenates tensors of one dtype into a vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Splits a vector into views with the shapes of `tensors`."""
    tensors = list(tensors)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))


def _rebuild_tensor(storage, storage_offset: int, size, stride) -> Tensor:
    """Creates a tensor over a typed storage; offset and strides are in elements."""
    return torch.empty(0, dtype=storage.dtype, device=storage.device).set_(storage, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None) -> Tensor:
    """Creates a tensor over a typed storage, under the name that PyTorch's files use."""
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_sparse_tensor(layout: _layout, data: tuple) -> Tensor:
    """Creates a sparse tensor from its parts, under the name that PyTorch's files use.

    Raises: NotImplementedError for another layout.
    """
    if layout is torch.sparse_coo:
        indices, values, size, *is_coalesced = data
        made = torch.sparse_coo_tensor(indices, values, size, check_invariants=False)
        return made._coalesced_(True) if is_coalesced and is_coalesced[0] else made
    if layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return torch.sparse_compressed_tensor(*data, layout=layout, check_invariants=False)
    raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Tensor:
    """Creates a parameter that shares the memory of a tensor, under the name that PyTorch's files use."""
    return torch.nn.Parameter(data, requires_grad)


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Sets the attributes of an object: a dictionary, or a pair of one and the values of slots. Returns the object."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    obj.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def _get_available_device_type() -> str | None:
    """The type of the accelerator that is there; None without one."""
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def _get_device_module(device_type: str) -> Any:
    """The module of a type of devices, such as `torch.cuda`. Raises: RuntimeError if there is none."""
    module = getattr(torch, device_type, None)
    if module is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return module


class ExceptionWrapper:
    """An exception of another thread or process, with its traceback as text, to be raised again here.

    >>> from tensorgrad._utils import ExceptionWrapper
    >>> try:
    ...     raise ValueError("no")
    ... except ValueError:
    ...     wrapped = ExceptionWrapper(where="in a worker")
    >>> wrapped.exc_type, wrapped.where
    (<class 'ValueError'>, 'in a worker')
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where

    def reraise(self) -> None:
        """Raises the exception again, with the text of the first traceback. Raises: its own type; RuntimeError if that
        takes other arguments than a message.
        """
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:  # whose message would be shown with its line breaks quoted
            raise KeyError(_Text(message))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


class _Text(str):
    """A text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
