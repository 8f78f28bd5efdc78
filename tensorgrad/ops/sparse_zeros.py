"""Sparse tensors without stored elements, and with the pattern of another: `zeros(layout=)`, `zeros_like`, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import dtypes, layouts
from tensorgrad.storage.sparse import COMPRESSED, CompressedArray, COOArray, SparseArray
from tensorgrad.tensor import Tensor, wrap


def _class_of(name: str, layout: Any) -> type[SparseArray]:
    """The class of a sparse layout's arrays. Raises: TypeError or NotImplementedError if it is none."""
    if layout is layouts.sparse_coo:
        return COOArray
    if layout not in COMPRESSED:
        layouts.check_strided(name, layout)
    return COMPRESSED[layout]


def _check_device(name: str, device: Any) -> None:
    if device is not None and not str(device).startswith("cpu"):
        raise NotImplementedError(f"{name}: sparse layouts are supported on the CPU only, got device {device}")


def without_elements(name: str, shape: tuple, layout: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """Returns zeros in a sparse layout, none of them stored.

    In a compressed layout this is also what PyTorch's `ones` and `full` make: a value for every element that is stored.

    Raises: NotImplementedError on another device than the CPU, and for other values than zeros in COO layout;
    RuntimeError for layouts that need more than a shape.
    """
    kind: Any = _class_of(name, layout)
    _check_device(name, device)
    if kind is COOArray and name.removeprefix("new_") not in ("zeros", "empty"):
        raise NotImplementedError(f"{name}(...) is not implemented for sparse layout")
    if kind is not COOArray and len(shape) < 2:
        raise RuntimeError(
            f"torch.{name}: Only batched sparse compressed (non-block) tensors are supported, but got size "
            f"{list(shape)}"
        )
    if kind is not COOArray and kind.blocked:
        raise RuntimeError(
            f"{name}_sparse_compressed expected sparse compressed (non-block) tensor layout but got {kind.title}"
        )
    found = dtypes.DEFAULT.floating if dtype is None else dtype
    return wrap(kind.without_elements(tuple(shape), found.numpy)).requires_grad_(requires_grad)


def clear(out: Tensor, shape: tuple, requires_grad: bool) -> Tensor:
    """Makes a sparse `out=` zeros of a shape, all of its dimensions sparse. Raises: RuntimeError if it cannot be."""
    array: Any = out._array
    if array.__class__ is COOArray:
        made = COOArray.without_elements(shape, array.dtype)
    elif len(shape) < 2 or array.blocked:
        raise RuntimeError(f"resize_: a tensor of layout {out.layout} cannot have the size {list(shape)}")
    else:
        made = array.without_elements(shape, array.dtype, 0, (1, 1), array.plain.dtype)
    out._storage.bump()
    array.shape = tuple(shape)
    array.take(made)
    return out.requires_grad_() if requires_grad else out


def sparse_like(
    name: str, input: Tensor, layout: Any, dtype: Any, device: Any, requires_grad: bool, fill: Any = None
) -> Tensor:
    """Returns a tensor of a sparse layout with the shape of `input`.

    `name` is "zeros_like" (no element is stored), or that of another function of this kind, which gives a tensor in
    CSR, CSC, BSR or BSC layout new values where it stores elements. `fill` makes them, or is the number that they are.

    Raises: NotImplementedError for other values in other layouts, RuntimeError if a layout needs to know more.
    """
    kind: Any = _class_of(name, layout)
    _check_device(name, device)
    array, numpy = input._array, (dtype or input.dtype).numpy
    if name == "zeros_like" or (name == "empty_like" and kind is COOArray):
        return wrap(_zeros(name, array, kind, numpy)).requires_grad_(requires_grad)
    if array.__class__ is COOArray and kind is not COOArray:
        return without_elements(name, array.shape, layout, dtype or input.dtype, device, requires_grad)
    if isinstance(array, CompressedArray) and kind is not array.__class__:
        raise RuntimeError(
            f"empty_like with different sparse layout is not supported (self is {array.title} but you requested "
            f"{kind.title})"
        )
    if kind is not array.__class__ or kind is COOArray:
        raise NotImplementedError(
            f"{name}: not supported for layout {layout} and a tensor of layout {getattr(array, 'title', 'Strided')}"
        )
    values = np.empty(array.values.shape, numpy)
    if callable(fill):
        fill(values)
    elif fill is not None:
        values.fill(fill)
    return wrap(array.with_values(values)).requires_grad_(requires_grad)


def _zeros(name: str, array: Any, kind: Any, dtype: np.dtype) -> Any:
    """Zeros like an array of any layout, of another class. Raises: RuntimeError if blocks are not known."""
    compressed = isinstance(array, CompressedArray)
    dense_dim = array.ndim - array.sparse_dim if array.__class__ is COOArray else array.dense_dim if compressed else 0
    if kind is COOArray:
        return kind.without_elements(array.shape, dtype, dense_dim)
    if array.ndim - dense_dim < 2 or (
        (compressed or kind.blocked) and getattr(array, "blocked", None) is not kind.blocked
    ):
        raise RuntimeError(f"{name}: expected a tensor that tells the dimensions and blocks of a {kind.title} tensor")
    if not compressed:
        return kind.without_elements(array.shape, dtype, dense_dim)
    return kind.without_elements(array.shape, dtype, dense_dim, array.block, array.plain.dtype)
