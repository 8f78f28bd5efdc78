"""Warnings, and argument checks shared by many functions, with PyTorch's messages."""

from __future__ import annotations

import sys
import warnings
from numbers import Number
from operator import index as as_int
from typing import Any

from tensorgrad import dtypes


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issues a warning that points at the user's code, skipping the library's own frames."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def typename(value) -> str:
    """Returns the name of a value's type as in PyTorch's messages: `list`, `numpy.ndarray`."""
    cls = type(value)
    return f"numpy.{cls.__name__}" if cls.__module__ == "numpy" else cls.__name__


class _Missing:
    """The default of a parameter that may be passed under another name."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = _Missing()
NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}  # PyTorch also accepts NumPy's names


def missing(name: str, **given) -> None:
    """Raises: TypeError naming the missing arguments, with Python's message."""
    lacking = [f"'{argument}'" for argument, value in given.items() if value is MISSING]
    some = f"{len(lacking)} required positional argument{'s'[: len(lacking) > 1]}"
    raise TypeError(f"{name}() missing {some}: {' and '.join(lacking)}")


def wrap_dim(dim: int, ndim: int) -> int:
    """Returns a non-negative dimension. Raises: IndexError if it is out of range.

    As in PyTorch, a 0-dimensional tensor is treated as having one dimension.
    """
    n = ndim or 1
    if not isinstance(dim, int):
        dim = as_integer(dim, "dim")
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def as_integer(value, argument: str, wanted: str = "int") -> int:
    """Converts a value (NumPy's integer, a one-element tensor) to an int. Raises: TypeError if it is not an integer."""
    try:
        return as_int(value)
    except TypeError:
        if isinstance(value, Number | str | None.__class__):
            raise TypeError(f"argument '{argument}' must be {wanted}, not {type(value).__name__}") from None
        raise


def wrap_dims(dims, ndim: int) -> tuple[int, ...]:
    """Returns non-negative dimensions. Raises: RuntimeError if one appears twice."""
    wrapped = tuple([wrap_dim(d, ndim) for d in dims])
    if len(wrapped) > 1 and len(set(wrapped)) != len(wrapped):
        twice = next(d for i, d in enumerate(wrapped) if d in wrapped[:i])
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return wrapped


_C_NAMES = {
    "bool": "bool", "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float16": "c10::Half",
    "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def check_number(value, dtype: dtypes.dtype) -> None:
    """Raises: RuntimeError unless the Python scalar fits into an element of `dtype`. (Fractions may be lost.)"""
    real = value.__class__ is float or value.__class__ is int
    if real and -100 < value < 100 and dtype.category == dtypes.FLOATING:
        return  # it fits into each of them
    fits = True
    if value.__class__ is complex:
        fits = dtype.category == dtypes.COMPLEX or value.imag == 0
        value = value.real
    if dtype.category == dtypes.INTEGER:
        info = dtypes.iinfo(dtype)
        low = info.min if dtype.is_signed or value.__class__ is float else -info.max  # small negative integers wrap
        fits = fits and low <= value <= info.max
    elif dtype.name not in ("bool", "float64", "complex128") and value.__class__ is not bool:
        finite = value == value and abs(value) != float("inf")
        limit = dtypes.finfo(dtype).max
        fits = fits and (not finite or abs(value) <= limit)
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {_C_NAMES[dtype.name]} without overflow")


class AcceleratorError(RuntimeError):
    """An error reported by a device other than the CPU.

    >>> import tensorgrad as torch
    >>> issubclass(torch.OutOfMemoryError, torch.AcceleratorError)
    True
    """
