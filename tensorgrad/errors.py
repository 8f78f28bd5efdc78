"""Warnings, and argument checks shared by many functions, with PyTorch's messages."""

from __future__ import annotations

import sys
import warnings
from inspect import CO_OPTIMIZED, CO_VARARGS
from numbers import Number, Real
from operator import index as as_int
from types import FrameType
from typing import Any

from tensorgrad import dtypes


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issues a warning that points at the user's code, skipping the library's own frames."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# (frame, argument) -> the position at which the call of a function gave it (overriding/caller_arguments.py)
POSITION_GIVEN: Any = None
_DEEPEST = 100  # frames that are looked at: a recursion may have very many


def hide_callers(frame: FrameType | None) -> None:
    """Marks the library's own frames, from this one outwards, which pytest and IPython then leave out of tracebacks.

    Both look for a local variable of that name. It is set here, when there is an error, as on the way it would cost
    every call.
    """
    for _ in range(_DEEPEST):
        if frame is None:
            return
        ours = frame.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad"
        if ours and frame.f_code.co_flags & CO_OPTIMIZED:  # a function: the variables of a module are its names
            held = frame.f_locals
            held["__tracebackhide__"] = True
            # Before Python 3.13 this is a copy that the frame keeps. With an exception in it, that would be a cycle.
            if isinstance(held, dict) and any(isinstance(value, BaseException) for value in held.values()):
                held.clear()
        frame = frame.f_back


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


def arguments_named(
    name: str, keywords: tuple[str, ...], given: tuple, named: dict[str, Any], before: int = 0
) -> tuple:
    """Returns the arguments that a function takes as `*given, **named`, in the order of `keywords`.

    Args:
        name: The function.
        keywords: The names of the arguments: all are required.
        given, named: Those that were given by position, and by name.
        before: How many other arguments were given by position.

    Raises:
        TypeError: If one is missing, given twice or unknown.

    >>> from tensorgrad.errors import arguments_named
    >>> arguments_named("new_full", ("size", "fill_value"), ((2, 3),), {"fill_value": 1})
    ((2, 3), 1)
    """
    if len(given) > len(keywords):
        most = before + len(keywords)
        raise TypeError(
            f"{name}() takes {most} positional argument{'s' * (most != 1)} but {before + len(given)} were given"
        )
    rest = dict(named)
    for at in range(len(given), len(keywords)):
        if keywords[at] not in rest:  # PyTorch also counts those that follow, and its plural is the wrong way round
            some = f"{len(keywords) - at} required positional argument{'s' * (at == len(keywords) - 1)}"
            raise TypeError(f"{name}() missing {some}: " + ", ".join(f'"{keyword}"' for keyword in keywords[at:]))
        given = (*given, rest.pop(keywords[at]))
    for keyword in rest:
        if keyword in keywords:
            raise TypeError(f"{name}() got multiple values for argument '{keyword}'")
        raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'")
    return given


def integers_given(name: str, keyword: str, given: tuple, named: dict[str, Any]) -> tuple:
    """Returns what a call `name(2, 3)`, `name((2, 3))` or `name(keyword=(2, 3))` gives by position, or would.

    Raises: TypeError if the integers are missing or given twice, or if a keyword is unknown.

    >>> from tensorgrad.errors import integers_given
    >>> integers_given("zeros", "size", (2, 3), {}), integers_given("zeros", "size", (), {"size": (2, 3)})
    ((2, 3), ((2, 3),))
    """
    return given if given and not named else arguments_named(name, (keyword,), (given,) if given else (), named)


def no_dimensions(dim: int) -> IndexError:
    """Returns the error for a dimension of a tensor that has none, where PyTorch does not treat it as having one."""
    return IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


def wrap_dim(dim: int, ndim: int) -> int:
    """Returns a non-negative dimension. Raises: IndexError if it is out of range.

    As in PyTorch, a 0-dimensional tensor is treated as having one dimension.
    """
    n = ndim or 1
    if dim.__class__ is not int:
        dim = as_integer(dim, "dim")
    if not -n <= dim < n:
        check_of_64_bits(dim, "dim")
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def of_64_bits(value: int) -> bool:
    """Whether 64 bits can hold an integer."""
    return -(1 << 63) <= value < 1 << 63


def check_of_64_bits(value: int, argument: str) -> None:
    """Raises: ValueError for an integer that 64 bits cannot hold, as PyTorch does."""
    if not of_64_bits(value):
        raise ValueError(f"Overflow when unpacking long long: argument '{argument}' is {value}")


def invalid_combination(name: str, expected: str) -> TypeError:
    """Returns the error for arguments that none of a function's signatures takes together."""
    return TypeError(f"{name}() received an invalid combination of arguments: {expected}")


# Python compares integers of 30 bits fastest: checks let these pass, and look at larger ones in a function.
SHORT_MIN, SHORT_MAX = -0x3FFFFFFF, 0x3FFFFFFF


def as_integer(value, argument: str, wanted: str = "int") -> int:
    """Converts a value (NumPy's integer, a one-element tensor) to an int. Raises: TypeError that names the function and
    the argument if it is not an integer, ValueError if 64 bits cannot hold it."""
    if value.__class__ is bool or not hasattr(value, "__index__"):  # as in PyTorch, a bool is not an integer
        raise wrong_argument(value, argument, wanted)
    found = as_int(value)  # a tensor says itself what is wrong
    check_of_64_bits(found, argument)
    return found


def as_integers(values, argument: str) -> tuple[int, ...]:
    """Returns the integers of a list, or the one integer that was given in its place. Raises: as `as_integer`, but
    TypeError for one of a list that 64 bits cannot hold."""
    if not isinstance(values, tuple | list):
        return (as_integer(values, argument, "tuple of ints"),)
    return tuple([
        v if v.__class__ is int and -1 << 63 <= v < 1 << 63 else _as_item(v, values, argument) for v in values
    ])  # fmt: skip


def _as_item(value, values, argument: str) -> int:
    """Converts one value of a list to an int. Raises: TypeError if it is none, or 64 bits cannot hold it."""
    if value.__class__ is bool or not hasattr(value, "__index__"):
        raise wrong_argument(value, argument, "tuple of ints")
    found = as_int(value)
    if not of_64_bits(found):
        name, argument, _, _ = _place_of(value, argument)
        position = next(i for i, item in enumerate(values, 1) if item is value)
        raise TypeError(
            f"{name + '(): ' if name else ''}argument '{argument}' failed to unpack the object at pos {position} with "
            'error "Overflow when unpacking long long"'
        )
    return found


def wrong_argument(value, argument: str, wanted: str) -> TypeError:
    """Returns the TypeError for a value that is not what a function takes.

    Args:
        argument: The name if no parameter has the value.
        wanted: What was expected, such as "int" or "tuple of ints".

    >>> torch.nn.Linear(2, "a")
    Traceback (most recent call last):
        ...
    TypeError: Linear(): argument 'out_features' must be int, not str
    """
    asked = argument
    name, argument, sequence, where = _place_of(value, asked)
    what = typename(value)
    if sequence is None and argument != asked:  # one of a layer's sizes
        wanted = wanted.removeprefix("tuple of ").removesuffix("s") if wanted == "tuple of ints" else wanted
    elif sequence is not None and len(sequence) > 1:
        position = next(i for i, item in enumerate(sequence) if item is value)
        return TypeError(
            f"{name}(): argument '{argument}'{where} must be {wanted}, but found element of type {what} at pos "
            f"{position}"
        )
    return TypeError(f"{name + '(): ' if name else ''}argument '{argument}'{where} must be {wanted}, not {what}")


def _place_of(value, argument: str) -> tuple[str, str, Any, str]:
    """Returns which function the program called, which of its arguments has a value, the sequence that contains it
    there (or None), and the words for the argument's position.

    The check may be deep inside the library. The function is that of the outermost of the library's own frames, and the
    argument is the first of its parameters that has the value; the one asked for if there is none.
    """
    frame: FrameType | None = sys._getframe(1)
    frames: list[FrameType] = []
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tensorgrad":
        if frame.f_globals is not globals():  # not the checks themselves
            frames.append(frame)
        frame = frame.f_back
    asked, name, sequence, where = argument, "", None, ""
    in_star: int | None = None
    for place in reversed(frames):
        called = _name_of(place)
        if name and called != name:  # the argument is to have the name that the program's own call has
            continue
        name = called
        if name and in_star is None:
            in_star = _position_in_star(place, value)
        found = _parameter_of(place, value, asked)
        if found is not None:
            argument, sequence = found
            if place.f_globals.get("__name__", "").startswith(("tensorgrad.dispatch", "tensorgrad.ops")):  # an op's
                given = in_star or POSITION_GIVEN(place, argument)
                where = f" (position {given})" if given else ""
            break
    return name, argument, sequence, where


def _name_of(frame) -> str:
    """Returns the public name of the function that runs in a frame; "" for helpers."""
    name = frame.f_code.co_name
    if name == "__init__":
        return type(frame.f_locals.get("self")).__name__
    return "" if name.startswith("_") or not name.isidentifier() or name in _STAND_INS else name


# Functions that run in the place of others: what stands for one that is not compiled yet, a module's `forward`.
_STAND_INS = frozenset(("call", "guard", "method", "forward", "function", "like", "wrapper"))


def _position_in_star(frame, value) -> int | None:
    """Returns the position of `*args` of a method (`x.flip(0, 1)`) if the value is among them, else None."""
    code = frame.f_code
    if not code.co_flags & CO_VARARGS or code.co_varnames[:1] != ("self",):
        return None
    held = frame.f_locals.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    if len(held) == 1 and isinstance(held[0], list | tuple):
        held = held[0]
    return code.co_argcount if any(item is value for item in held) else None


def _parameter_of(frame, value, asked: str) -> tuple[str, Any] | None:
    """Returns the name of the parameter that has a value (`asked`, if that has it), and the sequence that contains it;
    None if there is none."""
    code = frame.f_code
    last = code.co_argcount + code.co_kwonlyargcount
    by_keyword = code.co_varnames[code.co_argcount : last]
    names = code.co_varnames[: last + bool(code.co_flags & CO_VARARGS)]
    for name in sorted(names, key=lambda name: name != asked):
        if name in ("args", "fill") or (value is None and name in by_keyword and name != asked):
            continue
        held = frame.f_locals.get(name)
        if held is value:
            return name, None
        if isinstance(held, list | tuple):
            if len(held) == 1 and isinstance(held[0], list | tuple):
                held = held[0]
            if any(item is value for item in held):
                return name, held
    return None


def check_is_number(value, argument: str) -> None:
    """Raises: TypeError that names the function and the argument, unless the value is a number; OverflowError for an
    integer beyond 64 bits."""
    if not isinstance(value, Number):
        raise wrong_argument(value, argument, "Number")
    if value.__class__ is int and not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"int too big to convert: argument '{argument}' is {value}")


def as_factor(value, argument: str):
    """Returns a number, or the number that a tensor without dimensions has. Raises: TypeError that names the function
    and the argument."""
    if value.__class__ is int or value.__class__ is float or isinstance(value, Number):
        return value
    if getattr(value, "ndim", None) != 0:
        raise wrong_argument(value, argument, "Number")
    return value.item()


def as_number(value, argument: str):
    """The same; integers must fit into 64 bits. Raises: TypeError as above, or OverflowError."""
    value = as_factor(value, argument)
    check_is_number(value, argument)
    return value


def as_float(value, argument: str):
    """Returns a real number, or that of a tensor without dimensions: a float for an integer that is large. Raises:
    TypeError as above."""
    if isinstance(value, complex):
        raise wrong_argument(value, argument, "float")
    if isinstance(value, Number):
        return float(value) if value.__class__ is int else value
    if getattr(value, "ndim", None) != 0:
        raise wrong_argument(value, argument, "float")
    return value.item()


def check_string(value, argument: str) -> None:
    """Raises: TypeError that names the function and the argument, unless the value is a str."""
    if not isinstance(value, str):
        raise wrong_argument(value, argument, "str")


def check_numbers(function: str, *, first: int = 1, wanted: str = "float", **arguments) -> None:
    """Raises: TypeError that names a function and its argument, unless all arguments are numbers (or tensors).

    Args:
        function: The name.
        first: The position of the first of the arguments.
        wanted: "float" or "int".
        arguments: The values by name, in the order of their positions (`from_` stands for `from`).
    """
    for position, (name, value) in enumerate(arguments.items(), first):
        fits = hasattr(value, "__index__") if wanted == "int" else isinstance(value, Real) or hasattr(value, "dtype")
        if not fits:
            raise TypeError(
                f"{function}(): argument '{name.rstrip('_')}' (position {position}) must be {wanted}, not "
                f"{typename(value)}"
            )


def check_flag(value, argument: str) -> None:
    """Raises: TypeError that names the function and the argument, unless the value is a bool."""
    if value is not True and value is not False and type(value).__name__ not in ("bool", "bool_"):
        raise wrong_argument(value, argument, "bool")


def check_flags(**given) -> None:
    """The same of several values, by the names of their arguments."""
    for argument, value in given.items():
        check_flag(value, argument)


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
    "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
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
        if dtype in dtypes.BITS:
            raise NotImplementedError(f"\"fill_cpu\" not implemented for '{dtypes.scalar_type(dtype)}'")
        info = dtypes.iinfo(dtype)
        low = info.min if dtype.is_signed or value.__class__ is float else -info.max  # small negative integers wrap
        fits = fits and low <= value <= info.max
    elif dtype.name not in ("bool", "float64", "complex128") and value.__class__ is not bool:
        finite = value == value and abs(value) != float("inf")
        limit = dtypes.finfo(dtype).max
        fits = fits and (not finite or abs(value) <= limit)
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {_C_NAMES[dtype.name]} without overflow")


class CudaAbsentError(RuntimeError, AssertionError):
    """There is no GPU, or no package to use one: an AssertionError in PyTorch without CUDA, else a RuntimeError."""


class AcceleratorError(RuntimeError):
    """An error reported by a device other than the CPU.

    >>> issubclass(torch.OutOfMemoryError, torch.AcceleratorError)
    True
    """
