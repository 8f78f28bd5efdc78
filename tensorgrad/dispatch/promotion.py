"""Makes arrays of one dtype from the operands: PyTorch's type promotion, before a kernel runs.

The generated functions call this file only if operands differ (a Python number, two dtypes, two devices) or are wrong.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.half_precision import IN_FLOAT32, number_in_float32
from tensorgrad.dispatch.kernel_errors import check_one_device, raise_bool_subtraction
from tensorgrad.dtypes import F32, F64, I64, NUMBERS
from tensorgrad.errors import typename, wrong_argument
from tensorgrad.overriding.caller_arguments import position_given
from tensorgrad.overriding.function_classes import overrides
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import PLAIN, Tensor


def promote(op, *values):
    """The operands as arrays of the dtype in which `op` computes. A float32, float64 or int64 array with a Python
    number is returned unchanged.

    Raises: RuntimeError if the operands are on two devices.
    """
    if len(values) == 2:  # the most frequent cases first
        first, second = values
        if second.__class__ is float or second.__class__ is int:
            if first.__class__ not in NUMBERS:
                dtype = first.dtype
                if dtype is F32 or dtype is F64 or (dtype is I64 and second.__class__ is int and op.rule == "same"):
                    return values
        elif (
            first.__class__ is second.__class__
            and first.__class__ not in NUMBERS
            and F64 is first.dtype is second.dtype
        ):
            return values  # for ops that make floats of integers, the fast path takes float32 only
    like = None
    for v in values:
        if v.__class__ not in NUMBERS:
            if like is None or v.__class__ is like.__class__:
                like = v
            elif STORAGES[v.__class__].device_type != STORAGES[like.__class__].device_type:
                values, like = _one_device(op, values)
                break
    dtype = dtypes.result_type_of(values)
    if op.name == "sub" or op.name == "rsub":
        _check_subtraction(values)
    if op.rule == "float":
        dtype = dtypes.to_floating(dtype)
    target = dtype.numpy
    if dtype in dtypes.HALF and op.name in IN_FLOAT32:
        number = number_in_float32(values[0], values[1], target)
        if number is not None:
            return values[0], number
    return tuple(
        _number_array(v, dtype, like) if v.__class__ in NUMBERS else v if v.dtype == target else _cast(v, target)
        for v in values
    )


def _cast(x, target: np.dtype):
    """The array in another dtype. One that is expanded stays so: the result's strides follow from the operands'."""
    if target.kind == "W":  # complex32, which GPUs refuse
        return STORAGES[x.__class__].cast(x, target)
    if x.ndim < 2 or x.__class__ is not np.ndarray or 0 not in x.strides or not x.size:
        return x.astype(target)
    once = x[tuple([slice(1) if s == 0 else slice(None) for s in x.strides])]
    return np.broadcast_to(once.astype(target), x.shape)


def _check_subtraction(values) -> None:
    """Raises: RuntimeError for a boolean operand."""
    booleans = [v.__class__ is bool if v.__class__ in NUMBERS else v.dtype.kind == "b" for v in values]
    if any(booleans):
        raise_bool_subtraction(all(booleans))


def _number_array(value, dtype: dtypes.dtype, like):
    """A Python number as a 0-dimensional array on the device of the array `like`, or (None) on the CPU.

    An integer too large for a small dtype wraps around, as in PyTorch.

    Raises: OverflowError for an integer that no dtype can represent.
    """
    if dtype.category == dtypes.INTEGER and not -(2**63) <= value < 2**64:
        raise OverflowError("int too big to convert")
    with np.errstate(all="ignore"):
        array = np.asarray(value).astype(dtype.numpy)
    if like is None or like.__class__ is np.ndarray:
        return array
    return STORAGES[like.__class__].number(array, like)


def _one_device(op, values):
    """Operands of two array classes: a 0-dimensional CPU tensor joins any device; anything else is an error."""
    arrays = [v for v in values if v.__class__ not in NUMBERS]
    others = [a for a in arrays if not (a.__class__ is np.ndarray and a.ndim == 0)]
    if len({a.__class__ for a in others}) != 1:
        check_one_device(op.name, arrays)
    like = others[0]
    number = STORAGES[like.__class__].number
    return tuple(v if v.__class__ in (*NUMBERS, like.__class__) else number(v, like) for v in values), like


def to_floating(op, x):
    """The array in the dtype in which a real function of it is computed: integers become the default float."""
    if x.__class__ in NUMBERS:  # a number where a tensor is expected
        raise_not_a_tensor(op, 0, x)
    dtype = dtypes.from_numpy_dtype(x.dtype)
    target = dtypes.to_floating(dtype)
    return x if target is dtype else x.astype(target.numpy) if x.ndim < 2 else _cast(x, target.numpy)


OVERRIDDEN: Any = "ask the class"  # in the place of `requires_grad`: the operand is of a class that may override ops


# Of what PyTorch also computes for two numbers: `torch.div(7, 2)` is a tensor.
_OF_NUMBERS = frozenset(("add", "sub", "mul", "div", "div_floor", "div_trunc", "floor_divide"))


def operand(op, i: int, value, first=None):
    """An operand that is not a plain tensor: one of the user's own classes is `OVERRIDDEN`; some may be Python numbers.

    `first` is the operand before it, where that may be a number, too: then this one becomes an array.

    Raises: TypeError for anything else, and for a number where the op does not take one.
    """
    if isinstance(value, Tensor):
        return None, OVERRIDDEN
    if op.takes_number[i]:
        if first.__class__ in NUMBERS and value.__class__ in NUMBERS:
            if op.name not in _OF_NUMBERS:
                raise_not_a_tensor(op, 0, first)
            return np.asarray(value, dtypes.of_number(value).numpy), False
        if value.__class__ in NUMBERS:
            if value.__class__ is int and not -(2**63) <= value < 2**64:
                raise OverflowError("int too big to convert")
            return value, False
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return plain_number(value), False
        if isinstance(value, bool | int | float | complex):  # a subclass, such as an IntEnum
            return value.real if isinstance(value, int) else value, False
    if overrides(value):
        return None, OVERRIDDEN
    raise_not_a_tensor(op, i, value)


def plain_operand(op, i: int, value, first=None):
    """The same after classes had their chance to override: their tensors are unwrapped."""
    if isinstance(value, Tensor):
        return value._array, value._requires_grad
    if value.__class__ not in NUMBERS and overrides(value):
        raise_not_a_tensor(op, i, value)
    return operand(op, i, value, first)


def owner(op, value):
    """The operand whose operator is called. Raises: TypeError if it is not a tensor (`Tensor.__radd__(2, tensor)`)."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"descriptor '{op.name}' for 'torch._C.TensorBase' objects doesn't apply to a '{typename(value)}' object"
        )
    return value


def plain_number(value):
    """A NumPy scalar as a Python number, any other value unchanged. PyTorch reads `np.bool_` as a float."""
    if isinstance(value, np.generic):
        return float(value) if value.dtype.kind == "b" else value.item()
    return value


def operands(op, i: int, values):
    """The arrays of a list of tensors, and whether any of them requires grad; or that one is `OVERRIDDEN`.

    Raises: TypeError if it is not a list of tensors, or one of them is not.
    """
    if isinstance(values, list | tuple):
        arrays, requires = [], False
        for value in values:
            if value.__class__ not in PLAIN:
                break
            arrays.append(value._array)
            requires = requires or value._requires_grad
        else:
            return arrays, requires
        if any(overrides(value) or (isinstance(value, Tensor) and value.__class__ not in PLAIN) for value in values):
            return None, OVERRIDDEN
    return plain_operands(op, i, values)


def plain_operands(op, i: int, values):
    """The same after classes had their chance to override: their tensors are unwrapped."""
    if not isinstance(values, list | tuple):
        raise TypeError(
            f"{op.name}(): argument '{op.params[i].name}' (position {i + 1}) must be tuple of Tensors, not "
            f"{type(values).__name__}"
        )
    arrays, requires = [], False
    for k, value in enumerate(values):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"expected Tensor as element {k} in argument {i}, but got {type(value).__name__} ({op.name}())"
            )
        arrays.append(value._array)
        requires = requires or value._requires_grad
    return arrays, requires


def raise_not_a_tensor(op, i: int, value):
    """The TypeError for argument `i`."""
    name = [p.name for p in op.params if p.is_tensor][i]
    given = _position_given(name, value)
    position = [p.name for p in op.params].index(name) + 1 if given is None else given
    where = f" (position {position})" if position else ""
    raise TypeError(f"{op.name}(): argument '{name}'{where} must be Tensor, not {typename(value)}")


def refuse_numbers(**given) -> None:
    """For functions that would compute with numbers, too, where PyTorch takes tensors only.

    Raises: TypeError that names the function and the argument, unless all arguments are tensors.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise wrong_argument(value, name, "Tensor")


def _position_given(name: str, value) -> int | None:
    """The position at which the program's call gave an argument; 0 if it named it, None if that cannot be known."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad":
        if frame.f_locals.get(name) is value:
            given = position_given(frame, name)
            if given is not None:
                return given
        frame = frame.f_back
    return None


def other_operand(op, input, other):
    """`tensor + x` for an x that is neither a tensor nor a Python number, such as NumPy's scalars and arrays.

    As in PyTorch, NumPy itself computes `tensor + array`, by its own rules of promotion; the result is a tensor.
    """
    if is_number(other):
        return op.compiled.call(input, plain_number(other))
    if op.name == "rdiv" and isinstance(other, np.ndarray):  # in PyTorch `x / tensor` is a product: NumPy computes it
        return input.reciprocal() * other
    if op.name in ("eq", "ne") and isinstance(other, np.ndarray) and other.dtype.newbyteorder("=") in dtypes.FROM_NUMPY:
        # NumPy leaves these to the tensor, and Python would compare identities: PyTorch's `!=` is always True
        dtype = dtypes.from_numpy_dtype(other.dtype.newbyteorder("="))
        return op.compiled.call(input, input.new_tensor(other, dtype=dtype, device="cpu"))
    return NotImplemented


def is_number(value) -> bool:
    """Whether a value that is not of one of Python's own classes of numbers is a number to an operator."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufc"
    return isinstance(value, bool | int | float | complex)


def is_operand(value) -> bool:
    """Whether `tensor += value` is computed here; if not, Python tries `tensor + value`."""
    return isinstance(value, Tensor) or is_number(value) or overrides(value)


def as_array(value):
    """A result as an array: NumPy turns 0-dimensional ones into scalars."""
    return value if value.__class__ in STORAGES else np.asarray(value)
