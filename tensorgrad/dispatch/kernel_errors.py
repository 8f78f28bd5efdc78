"""Errors in kernels, in PyTorch's words.

Kernels do not check their arguments: NumPy does. Its exceptions arrive here, off the fast path, where there is time to
look at the arguments and report the op, the shapes and what was expected.
"""

from __future__ import annotations

import sys
from inspect import CO_VARARGS
from numbers import Number
from types import FrameType
from typing import Any, SupportsIndex

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_number, check_of_64_bits, hide_callers, of_64_bits, wrong_argument
from tensorgrad.layouts import strided
from tensorgrad.storage.cuda import capture
from tensorgrad.storage.stubs import STORAGES


class Composed(NotImplementedError):
    """Raised by a kernel for arrays on which its op is to run as other ops over tensors (a view or a pointwise op)."""


# By other ops (ops/sparse/composed.py): kind -> a function of (op, arguments), for the result; "tangent": its tangent.
COMPOSED: dict[str, Any] = {}


def explain(op, error: Exception, values: tuple, arguments: tuple):
    """Raises PyTorch's error for `error`, which the op's kernel raised on `values`.

    Returns the result after all if `error` was only a floating-point warning that the user's filters turned into
    an exception: overflow and division by zero are not errors in PyTorch. If the kernel asks for other ops to run in
    its place (`Composed`), the result is a tensor.
    """
    __tracebackhide__ = True
    if isinstance(error, Composed):
        return COMPOSED[op.kind](op, arguments)
    if _of_a_signal(error):
        raise error
    hide_callers(sys._getframe(2))
    if isinstance(error, RuntimeWarning | FloatingPointError):
        with np.errstate(all="ignore"):
            first = values[0][0] if isinstance(values[0], list) else values[0]
            return op.compiled.kernels[first.__class__](*values)
    if isinstance(error, TypeError | ValueError | AttributeError | RuntimeError | OverflowError):
        _check_plain_values(op, arguments)
    other = _of_other_layout(values)
    if other is not None:
        return op.compiled.kernels[other](*values)
    check_one_device(op.name, [v for value in values for v in (value if isinstance(value, list) else (value,))])
    if isinstance(error, RuntimeError | IndexError) and not isinstance(error, RecursionError):
        capture.explain(op.name, error)
        raise error.with_traceback(None) if _only_ours(error) else error
    arrays: list[Any] = [v for v in values if v.__class__ in STORAGES]
    if op.kind == "pointwise" or (isinstance(error, ValueError) and "broadcast" in str(error)):
        check_broadcastable(arrays)
    if isinstance(error, ValueError) and "maximum supported dimension" in str(error):
        raise RuntimeError(f"{op.name}: only tensors with up to 64 dims are supported") from error
    if op.kind == "pointwise":
        _dtype_error(op, error, arrays)
    described = ", ".join(
        f"{dtypes.from_numpy_dtype(v.dtype).name}{list(v.shape)}" if v.__class__ in STORAGES else repr(v)
        for v in values
    )
    if isinstance(error, OverflowError) or not isinstance(error, _OF_ARRAYS):
        raise error
    raise RuntimeError(f"{op.name}({described}): {error}") from error


# What the annotation of a plain value allows, and what PyTorch's message calls it.
_PLAIN = {"number": (Number, "Number"), "float": (Number, "float"), "int": (SupportsIndex, "int")}


def _check_plain_values(op, arguments: tuple) -> None:
    """Raises: TypeError for a number that is a string or the like, ValueError for an integer beyond 64 bits,
    RuntimeError for a complex number beside a real tensor."""
    __tracebackhide__ = True
    for param, value in zip(op.params, arguments, strict=False):
        allowed, wanted = _PLAIN.get(param.annotation, (object, ""))
        if wanted == "int" and value.__class__ is int:
            check_of_64_bits(value, param.name)
        if param.annotation == "shape" and isinstance(value, list | tuple):
            for size in value:
                if size.__class__ is int and not of_64_bits(size):
                    raise wrong_argument(size, param.name, "tuple of ints of 64 bits") from None
        if wanted == "Number" and value.__class__ is complex:
            first = next((v for v in arguments if getattr(v, "_array", None) is not None), None)
            if first is not None and not first.dtype.is_complex:
                check_number(value, first.dtype)
        fits = isinstance(value, allowed) or value is None or value.__class__ in STORAGES
        if not fits and getattr(value, "ndim", None) != 0:
            raise wrong_argument(value, param.name, wanted) from None


def _of_other_layout(values: tuple):
    """The class of the first array that is not strided, if the op ran the kernel of a strided one; else None.

    A kernel is chosen by the first array, and one for strided arrays cannot read any other.
    """
    arrays = [
        v for value in values for v in (value if isinstance(value, list) else (value,)) if v.__class__ in STORAGES
    ]
    if not arrays or STORAGES[arrays[0].__class__].layout is not strided:
        return None
    return next((a.__class__ for a in arrays if STORAGES[a.__class__].layout is not strided), None)


# What NumPy raises for shapes and values that do not fit; other exceptions are not about the op's arguments.
_OF_ARRAYS = (ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, BufferError)


def _of_a_signal(error: Exception) -> bool:
    """Whether a signal handler raised the error: handlers receive the frame that they interrupted."""
    place = error.__traceback__
    while place is not None:
        code, held = place.tb_frame.f_code, place.tb_frame.f_locals
        given = [held.get(name) for name in code.co_varnames[: code.co_argcount + bool(code.co_flags & CO_VARARGS)]]
        if any(isinstance(v[-1] if v.__class__ is tuple and v else v, FrameType) for v in given):
            return True
        place = place.tb_next
    return False


def _only_ours(error: Exception) -> bool:
    """Whether the error was raised on purpose by a kernel of this library: nobody needs to see where."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "tensorgrad":
            return False
        place = place.tb_next
    return True


def check_one_device(name: str, values: list) -> None:
    """Raises: RuntimeError that names the devices, unless all arrays among the values are on one."""
    __tracebackhide__ = True
    arrays = [v for v in values if v.__class__ in STORAGES]
    found = {str(STORAGES[a.__class__].device_of(a)) for a in arrays}
    if len(found) > 1:
        names = sorted(found, key=lambda device: (device == "cpu", device))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(names)}! "
            f"(when checking arguments of {name}: shapes {[list(a.shape) for a in arrays]})"
        )


def check_broadcastable(arrays) -> None:
    """Raises: RuntimeError, in PyTorch's words, unless the arrays' shapes broadcast together."""
    __tracebackhide__ = True
    if len(arrays) < 2:
        return
    ndim = max(a.ndim for a in arrays)
    for dim in range(-1, -ndim - 1, -1):
        size = 1
        for a in arrays:
            n = a.shape[dim] if a.ndim >= -dim else 1
            if n != 1 and size not in (1, n):
                raise RuntimeError(
                    f"The size of tensor a ({size}) must match the size of tensor b ({n}) at non-singleton dimension "
                    f"{ndim + dim}"
                ) from None
            size = n if n != 1 else size


def _dtype_error(op, error: Exception, arrays) -> None:
    __tracebackhide__ = True
    if not isinstance(error, TypeError):
        return
    if op.name in ("sub", "rsub") and any(a.dtype.kind == "b" for a in arrays):
        raise_bool_subtraction(all(a.dtype.kind == "b" for a in arrays))
    if op.name == "neg" and arrays[0].dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        ) from None
    unsupported(op.name, arrays[0])


def raise_bool_subtraction(both: bool) -> None:
    """Raises: RuntimeError, as PyTorch does, for a subtraction with a boolean operand."""
    if both:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        ) from None
    raise RuntimeError(
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
        "the `~` or `logical_not()` operator instead."
    ) from None


def unsupported(name: str, array):
    """Raises: NotImplementedError, in PyTorch's words, for an op that does not exist for the array's dtype."""
    found = scalar_type(dtypes.from_numpy_dtype(array.dtype))
    device = getattr(STORAGES.get(array.__class__), "device_type", "cpu")
    raise NotImplementedError(f"\"{name}_{device}\" not implemented for '{found}'") from None


def check_real_floats(x, kernel: str) -> None:
    """Raises: NotImplementedError, in PyTorch's words, for an array whose dtype is not a real floating-point one."""
    __tracebackhide__ = True
    if x.dtype.kind != "f" and dtypes.FROM_NUMPY.get(x.dtype) is not dtypes.bfloat16:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(x)}'")
