"""Sparse layouts: arrays that store only some of their elements.

A layout is a class of array, as a device is: its `Storage` names the layout, and kernels are registered for that name
(kernels/sparse/table.py). Shape, dtype and size are those of the whole tensor.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from tensorgrad import devices, layouts
from tensorgrad.storage.stubs import Storage, register


class SparseArray:
    """What sparse arrays have in common: the `values` that are stored, and the shape of the whole.

    Arrays of indices never change. So `orders` keeps what was computed from them (kernels/sparse/lines.py), for all
    arrays of one pattern.
    """

    __slots__ = ("__weakref__", "orders", "shape", "values")

    orders: dict[str, Any]

    shape: tuple[int, ...]
    values: np.ndarray

    __array_ufunc__ = None  # NumPy refuses: the call then looks for the layout's kernel (dispatch/kernel_errors.py)
    strides = ()  # there are none
    flags = SimpleNamespace(c_contiguous=True, f_contiguous=False, writeable=True)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self.values.itemsize)
    nbytes = property(lambda self: self.size * self.values.itemsize)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(f"can't convert {type(self).title} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __len__(self) -> int:
        return self.shape[0]

    title: ClassVar[str]  # of the layout, in messages

    def parts(self) -> tuple[np.ndarray, ...]:
        """The arrays of which it consists, the values last."""
        raise NotImplementedError

    def named_parts(self) -> list[tuple[str, np.ndarray]]:
        """The same with PyTorch's names for them."""
        return [*zip(self.part_names, self.parts())]

    part_names: ClassVar[tuple[str, ...]]

    def of_parts(self, *parts: np.ndarray) -> Any:
        """An array like this one, of other parts."""
        raise NotImplementedError

    def take(self, other: Any) -> None:
        """Becomes an array like `other`, of the same shape and layout."""
        raise NotImplementedError

    def with_values(self, values: np.ndarray) -> Any:
        """The same pattern with other values."""
        made = self.of_parts(*self.parts()[:-1], values)
        made.orders = self.orders
        return made

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> Any:
        """The same elements with another dtype."""
        return self.with_values(self.values.astype(dtype))

    def copy(self) -> Any:
        """A copy that shares nothing."""
        return self.of_parts(*(part.copy() for part in self.parts()))

    def zeros(self) -> Any:
        """An array of zeros of the same shape, layout and dtype, none of them stored."""
        raise NotImplementedError

    @classmethod
    def without_elements(cls, shape: tuple, dtype: Any) -> Any:
        """An array of zeros, none of them stored."""
        raise NotImplementedError


class COOArray(SparseArray):
    """Elements at coordinates: column k of `indices` (sparse dims, n) says where `values[k]` belongs.

    `values` has the shape (n, *dense dims). Coordinates may occur more than once: their values add up. In a
    `coalesced` array each occurs once, in order.
    """

    __slots__ = ("coalesced", "indices")

    title = "Sparse"
    part_names = ("indices", "values")

    def __init__(self, indices: np.ndarray, values: np.ndarray, shape: tuple, coalesced: bool | None = None):
        self.indices, self.values, self.shape = indices, values, shape
        self.coalesced = indices.shape[1] < 2 if coalesced is None else coalesced
        self.orders = {}

    @property
    def sparse_dim(self) -> int:
        """How many dimensions, the first ones, are sparse."""
        return self.indices.shape[0]

    def parts(self):
        return self.indices, self.values

    def of_parts(self, *parts):
        indices, values = parts
        return COOArray(indices, values, self.shape, self.coalesced)

    def take(self, other):
        self.indices, self.values, self.coalesced = other.indices, other.values, other.coalesced
        self.orders = other.orders

    def zeros(self):
        return self.without_elements(self.shape, self.dtype, self.ndim - self.sparse_dim)

    @classmethod
    def without_elements(cls, shape, dtype, dense_dim: int = 0):
        sparse_dim = len(shape) - dense_dim
        values = np.empty((0, *shape[sparse_dim:]), dtype)
        return cls(np.empty((sparse_dim, 0), np.int64), values, tuple(shape), coalesced=True)


class CompressedArray(SparseArray):
    """Elements row after row (CSR, BSR) or column after column (CSC, BSC).

    Row i has the values from `compressed[i]` to `compressed[i + 1]`, in the columns that `plain` says. Both have the
    dimensions of a batch first. `values` has the shape (*batch, n, *block, *dense dims); only BSR and BSC have blocks.
    """

    __slots__ = ("compressed", "plain")

    by_rows: ClassVar[bool]  # or by columns
    blocked: ClassVar[bool]

    def __init__(self, compressed: np.ndarray, plain: np.ndarray, values: np.ndarray, shape: tuple):
        self.compressed, self.plain, self.values, self.shape = compressed, plain, values, shape
        self.orders = {}

    @property
    def batch_dim(self) -> int:
        """How many dimensions, the first ones, are those of the batch."""
        return self.compressed.ndim - 1

    @property
    def dense_dim(self) -> int:
        """How many dimensions, the last ones, are dense."""
        return len(self.shape) - self.batch_dim - 2

    def zeros(self):
        return self.without_elements(self.shape, self.dtype, self.dense_dim, self.block, self.plain.dtype)

    @property
    def block(self) -> tuple[int, ...]:
        """The shape of a block: (1, 1) without blocks."""
        return self.values.shape[self.batch_dim + 1 : self.batch_dim + 3] if self.blocked else (1, 1)

    def parts(self):
        return self.compressed, self.plain, self.values

    def of_parts(self, *parts):
        compressed, plain, values = parts
        return type(self)(compressed, plain, values, self.shape)

    def take(self, other):
        self.compressed, self.plain, self.values = other.parts()
        self.orders = other.orders

    @classmethod
    def without_elements(cls, shape, dtype, dense_dim: int = 0, block: tuple = (1, 1), index_dtype: Any = np.int64):
        batch = tuple(shape[: len(shape) - 2 - dense_dim])
        lines = shape[len(batch) + (not cls.by_rows)] // block[not cls.by_rows]
        inner = tuple(block) if cls.blocked else ()
        values = np.empty((*batch, 0, *inner, *shape[len(shape) - dense_dim :]), dtype)
        return cls(np.zeros((*batch, lines + 1), index_dtype), np.empty((*batch, 0), index_dtype), values, tuple(shape))


_OF_ROWS, _OF_COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")


class CSRArray(CompressedArray):
    __slots__ = ()
    title, part_names, by_rows, blocked = "SparseCsr", _OF_ROWS, True, False


class CSCArray(CompressedArray):
    __slots__ = ()
    title, part_names, by_rows, blocked = "SparseCsc", _OF_COLUMNS, False, False


class BSRArray(CompressedArray):
    __slots__ = ()
    title, part_names, by_rows, blocked = "SparseBsr", _OF_ROWS, True, True


class BSCArray(CompressedArray):
    __slots__ = ()
    title, part_names, by_rows, blocked = "SparseBsc", _OF_COLUMNS, False, True


class SparseStorage(Storage):
    """The elements of a sparse tensor, in main memory."""

    __slots__ = ()

    array_type: ClassVar[type[SparseArray]]

    device_type = "cpu"
    sum: Any  # the kernel that adds two arrays, set by kernels/sparse/table.py

    @classmethod
    def device_of(cls, array):
        return devices.CPU

    @classmethod
    def from_host(cls, array, device):
        raise NotImplementedError(f"tensors of layout {cls.layout} are made from dense ones by to_sparse()")

    @classmethod
    def to_host(cls, array):
        return array.__array__()

    @classmethod
    def empty(cls, shape, dtype, device):
        return cls.array_type.without_elements(tuple(shape), dtype)

    @classmethod
    def copy(cls, array):
        return array.copy()

    @classmethod
    def cast(cls, array, dtype, order="K"):
        return array.with_values(Storage.cast(array.values, dtype))

    @classmethod
    def write(cls, target, values):
        if not isinstance(values, SparseArray) and np.ndim(values) == 0 and not values:
            values = target.zeros()
        if values.__class__ is not target.__class__:
            raise RuntimeError(f"copy_() between dense and sparse Tensors is not implemented! Found {cls.layout} here")
        if tuple(values.shape) != tuple(target.shape):
            raise RuntimeError(
                f"copy_: expected a tensor of shape {list(target.shape)}, got {list(values.shape)} (sparse tensors are "
                "not broadcast)"
            )
        target.take(values.copy() if values.dtype == target.dtype else cls.cast(values, target.dtype))

    @classmethod
    def add_to(cls, target, values):
        target.take(cls.sum(target, values))

    @classmethod
    def number(cls, value, like):
        return value

    def nbytes(self):
        raise NotImplementedError(f"Cannot access storage of {self.array.title}TensorImpl")

    size = nbytes

    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def strided(self, shape, strides, offset, dtype):
        if not strides:  # the whole, as another array
            return self.array.with_values(self.array.values)
        raise RuntimeError(f"{self.array.title} tensors do not have strides")

    def geometry(self, array):
        return array  # no memory is shared but that of its parts

    def view(self, geometry, dtype):
        return geometry

    def __reduce__(self):
        return type(self).of, (self.array,)


@register
class COOStorage(SparseStorage):
    __slots__ = ()
    layout, array_type = layouts.sparse_coo, COOArray


@register
class CSRStorage(SparseStorage):
    __slots__ = ()
    layout, array_type = layouts.sparse_csr, CSRArray


@register
class CSCStorage(SparseStorage):
    __slots__ = ()
    layout, array_type = layouts.sparse_csc, CSCArray


@register
class BSRStorage(SparseStorage):
    __slots__ = ()
    layout, array_type = layouts.sparse_bsr, BSRArray


@register
class BSCStorage(SparseStorage):
    __slots__ = ()
    layout, array_type = layouts.sparse_bsc, BSCArray


COMPRESSED = {layouts.sparse_csr: CSRArray, layouts.sparse_csc: CSCArray, layouts.sparse_bsr: BSRArray,
              layouts.sparse_bsc: BSCArray}  # fmt: skip
