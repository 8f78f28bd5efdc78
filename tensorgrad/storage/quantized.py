"""Quantized tensors: integers that stand for (integer - zero point) * scale."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tensorgrad import devices, dtypes, layouts
from tensorgrad.storage.cpu import CPUStorage
from tensorgrad.storage.stubs import register

_LIMITS = {"qint8": (-128, 127), "quint8": (0, 255), "qint32": (-(2**31), 2**31 - 1)}


def limits(kind: dtypes.dtype) -> tuple[int, int]:
    """The range of the integers of a quantized dtype."""
    return _LIMITS[kind.name]


class QuantizedArray:
    """Integers with a scale and a zero point: a number each, or along `axis` an array for each channel."""

    __slots__ = ("__weakref__", "as_weights", "axis", "dtype", "ints", "scale", "zero_point")

    __array_ufunc__ = None  # NumPy refuses: the call then looks for a kernel (dispatch/kernel_errors.py)

    def __init__(self, ints: np.ndarray, scale: Any, zero_point: Any, axis: int | None, kind: dtypes.dtype):
        self.ints, self.scale, self.zero_point, self.axis = ints, scale, zero_point, axis
        self.dtype = dtypes.OF_QUANTIZED[kind]
        self.as_weights: Any = None  # what products take instead, kept by them (ao/nn/quantized/products.py)

    shape = property(lambda self: self.ints.shape)
    strides = property(lambda self: self.ints.strides)
    flags = property(lambda self: self.ints.flags)
    ndim = property(lambda self: self.ints.ndim)
    size = property(lambda self: self.ints.size)
    itemsize = property(lambda self: self.ints.itemsize)
    nbytes = property(lambda self: self.ints.nbytes)
    kind = property(lambda self: dtypes.FROM_NUMPY[self.dtype])

    def __len__(self) -> int:
        return len(self.ints)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(f"Got unsupported ScalarType {dtypes.scalar_type(self.kind)}")

    def of_ints(self, ints: np.ndarray) -> QuantizedArray:
        """Other integers with the same meaning."""
        return QuantizedArray(ints, self.scale, self.zero_point, self.axis, self.kind)

    def along(self, values: Any, dtype: Any) -> np.ndarray:
        """A scale or zero point for each element: a number, or an array that meets the axis."""
        array = np.asarray(values, dtype)
        if self.axis is None:
            return array
        return array.reshape([-1 if d == self.axis else 1 for d in range(self.ndim)])

    def numbers(self) -> np.ndarray:
        """What the integers stand for, in float32."""
        kind = np.float32 if self.itemsize == 1 else np.float64
        made = (self.ints.astype(kind) - self.along(self.zero_point, kind)) * self.along(self.scale, np.float32)
        return made.astype(np.float32, copy=False)


@register
class QuantizedStorage(CPUStorage):
    """The integers of a quantized tensor, in main memory."""

    __slots__ = ()

    array_type: ClassVar[Any] = QuantizedArray
    backend = "quantized"
    layout = layouts.strided
    xp = None

    def _ints(self) -> CPUStorage:
        return CPUStorage.of(self.array.ints)  # type: ignore[return-value]

    @classmethod
    def device_of(cls, array):
        return devices.CPU

    @classmethod
    def from_host(cls, array, device):
        raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")

    @classmethod
    def to_host(cls, array):
        return array.__array__()

    @classmethod
    def empty(cls, shape, dtype, device):
        return cls.from_host(None, device)

    @classmethod
    def copy(cls, array):
        return array.of_ints(CPUStorage.copy(array.ints))

    @classmethod
    def cast(cls, array, dtype, order="K"):
        return cls.from_host(array, None)

    @classmethod
    def write(cls, target, values):
        if not isinstance(values, QuantizedArray):
            raise RuntimeError("copy_: only a quantized tensor can be copied to a quantized tensor")
        target.ints[...] = values.ints
        target.scale, target.zero_point, target.axis = values.scale, values.zero_point, values.axis

    @classmethod
    def number(cls, value, like):
        return value

    def strided(self, shape, strides, offset, dtype):
        return self.array.of_ints(self._ints().strided(shape, strides, offset, self.array.ints.dtype))

    def offset_of(self, array):
        return self._ints().offset_of(array.ints)

    def data_ptr(self):
        return self._ints().data_ptr()

    def __reduce__(self):
        return type(self).of, (self.array,)
