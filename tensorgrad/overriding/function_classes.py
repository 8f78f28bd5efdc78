"""Classes that are not tensors but define `__torch_function__`: functions of torch that are given one call that.

Nothing looks for them before a call has failed to find tensors, so that ordinary calls do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.overriding import caller_arguments
from tensorgrad.tensor import PLAIN, Tensor


def overrides(value: Any) -> bool:
    """Returns whether a value is not a tensor, and its class defines `__torch_function__`.

    PyTorch's own tensors, where it is installed beside this library, override nothing: theirs calls the function again.
    """
    override = getattr(type(value), "__torch_function__", None)
    if override is None or isinstance(value, Tensor | type):
        return False
    return getattr(override, "__module__", None) not in ("torch._tensor", "torch._C")


def overriding(values: Any, around: tuple = ()) -> Iterator[Any]:
    """Yields the values of such classes, also those in nested lists and tuples; not in a list that is inside itself."""
    for value in values:
        if isinstance(value, list | tuple):
            if not any(value is outer for outer in around):
                yield from overriding(value, (*around, value))
        elif overrides(value):
            yield value


def classes_of(values: Any, around: tuple = ()) -> Iterator[type]:
    """Yields the classes of the tensors that are not plain, and of other values that override functions, in the order
    of the arguments."""
    for value in values:
        if isinstance(value, list | tuple):
            if not any(value is outer for outer in around):
                yield from classes_of(value, (*around, value))
        elif (isinstance(value, Tensor) and value.__class__ not in PLAIN) or overrides(value):
            yield value.__class__


def in_order(types: Any) -> tuple[type, ...]:
    """The classes in the order in which they are asked: that of the arguments, but subclasses before their bases."""
    found: list[type] = []
    for cls in types:
        if cls not in found:
            at = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
            found.insert(at, cls)
    return tuple(found)


def call(func: Callable, types: tuple[type, ...], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Asks the classes one after the other (`in_order`). Raises: TypeError if all return `NotImplemented`."""
    for cls in in_order(types):
        result = cls.__torch_function__(func, types, args, kwargs)  # type: ignore[attr-defined]
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"Multiple dispatch failed for 'torch.{func.__name__}'; all __torch_function__ handlers returned "
        f"NotImplemented: {', '.join(c.__name__ for c in types)}"
    )


def as_called(func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Returns all arguments of a function that is running as its caller wrote them, as PyTorch passes them on.

    Methods of such classes need not know `out=` or `memory_format=`. Where the caller cannot be asked, what has its
    default counts as not written.

    Args:
        func: The function.
        args: Those that it has by position, also the defaults.
        kwargs: Those that it has by keyword.
    """
    if caller_arguments.is_in_python(func):
        return caller_arguments.completed(func, args, kwargs)
    codes = [func.__code__] if hasattr(func, "__code__") else []
    found = caller_arguments.arguments(func, codes, args, kwargs)
    return without_defaults(func, args, kwargs) if found is None else found


def without_defaults(func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments that differ from their default. What follows one that was left out is passed by keyword."""
    defaults = getattr(func, "__kwdefaults__", None) or {}
    kwargs = {key: value for key, value in kwargs.items() if key not in defaults or value is not defaults[key]}
    positional = getattr(func, "__defaults__", None) or ()
    code = getattr(func, "__code__", None)
    if not positional or code is None or len(args) > code.co_argcount:
        return args, kwargs
    first = code.co_argcount - len(positional)  # the first that has a default
    names = code.co_varnames[: code.co_argcount]
    left_out = [i >= first and args[i] is positional[i - first] for i in range(len(args))]
    if True not in left_out:
        return args, kwargs
    at = left_out.index(True)
    late = {names[i]: args[i] for i in range(at, len(args)) if not left_out[i]}
    return args[:at], {**late, **kwargs}
