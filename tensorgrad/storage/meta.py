"""The meta device: shapes without data, for planning a program without running it."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorgrad import devices
from tensorgrad.layouts import dense_order, made_in_order
from tensorgrad.storage.cpu import Window
from tensorgrad.storage.stubs import Storage, register


class MetaArray:
    """An array with shape, strides and dtype, but no elements.

    `phantom` is a NumPy array of this geometry over a single element. It must never be read or written, but view
    kernels, which only rearrange shape and strides, run on it as on any array, so meta needs no view rules of its
    own. (Its addresses are imaginary; NumPy only computes with them.)
    """

    __slots__ = ("__weakref__", "phantom")

    def __init__(self, phantom: np.ndarray):
        self.phantom = phantom

    @classmethod
    def empty(cls, shape: tuple, dtype: np.dtype, strides: tuple | None = None) -> MetaArray:
        """Creates a meta array, C-contiguous unless `strides` (in bytes) are given."""
        if strides is None:
            sizes = [max(n, 1) for n in shape]
            strides = tuple(dtype.itemsize * math.prod(sizes[i:]) for i in range(1, len(sizes) + 1))
        one = np.empty(
            1, dtype if dtype.isbuiltin != 2 else f"V{dtype.itemsize}"
        )  # 2: of ml_dtypes, unknown to as_strided
        return cls(as_strided(one, shape, strides).view(dtype))

    shape = property(lambda self: self.phantom.shape)
    dtype = property(lambda self: self.phantom.dtype)
    strides = property(lambda self: self.phantom.strides)
    ndim = property(lambda self: self.phantom.ndim)
    size = property(lambda self: self.phantom.size)
    itemsize = property(lambda self: self.phantom.itemsize)
    nbytes = property(lambda self: self.phantom.nbytes)
    flags = property(lambda self: self.phantom.flags)

    def astype(self, dtype, order: str = "K", copy: bool = True) -> MetaArray:
        """Returns the same shape with another dtype, laid out according to NumPy's `order`."""
        dims = sorted(range(self.ndim), key=lambda d: -self.strides[d]) if order == "K" else [*range(self.ndim)]
        return made_in_order(lambda shape: MetaArray.empty(shape, np.dtype(dtype)), self.shape, dims)

    def transpose(self, axes) -> MetaArray:
        """Permutes the dimensions."""
        return MetaArray(self.phantom.transpose(axes))

    def __len__(self) -> int:
        return len(self.phantom)


@register
class MetaStorage(Storage):
    __slots__ = ()

    device_type = "meta"
    array_type = MetaArray

    @classmethod
    def device_of(cls, array):
        return devices.META

    @classmethod
    def from_host(cls, array, device):
        return MetaArray(array).astype(array.dtype, "K" if dense_order(array) else "C")

    @classmethod
    def to_host(cls, array):
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    @classmethod
    def empty(cls, shape, dtype, device):
        return MetaArray.empty(tuple(shape), np.dtype(dtype))

    @classmethod
    def copy(cls, array):
        return array.astype(array.dtype)

    @classmethod
    def write(cls, target, values):
        np.broadcast_shapes(target.shape, getattr(values, "shape", ()))

    @classmethod
    def add_to(cls, target, values):
        pass

    def strided(self, shape, strides, offset, dtype):
        if not shape:
            return MetaArray.empty((), dtype)
        phantom = self.array.phantom
        return MetaArray(np.asarray(Window(phantom, phantom.ctypes.data + offset, shape, strides, dtype)).view(dtype))

    def offset_of(self, array):
        return array.phantom.ctypes.data - self.array.phantom.ctypes.data
