"""What calls the `TorchFunctionMode`s that are on (`torch.overrides`) in place of an op or another function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

from tensorgrad.overriding import caller_arguments
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import PLAIN, Tensor, tensors_in

# What users call as `torch.name`, or else `torch.nn.functional.name` (dispatch/guard.py).
COMPOSITES: dict[str, Callable] = {}


def call(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the innermost mode in place of a function; meanwhile that mode is off. `NotImplemented` if it declines."""
    modes = LOCAL.function_modes
    types = tuple({t.__class__: None for t in tensors_in(args) if t.__class__ not in PLAIN})
    LOCAL.function_modes = modes[:-1]
    try:
        return modes[-1].__torch_function__(func, types, args, kwargs)
    finally:
        LOCAL.function_modes = modes


def call_for_op(op: Any, args: tuple, out: Any, is_operator: bool) -> Any:
    """Calls the innermost mode in place of an op, with the arguments as its caller wrote them."""
    return call(users_function(op, is_operator), *as_called(op, args, out, is_operator))


def as_called(op: Any, args: tuple, out: Any, is_operator: bool) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments of an op whose function is running as its caller wrote them."""
    function, through = op.compiled.call, users_function(op, False)
    if not is_operator and function.__kwdefaults__:  # it has `out=`, if not more
        ordered = tuple(value for p, value in zip(op.params, args) if not p.keyword)
        named = {p.name: value for p, value in zip(op.params, args) if p.keyword}
        found = caller_arguments.arguments(
            function, (function.__code__, through.__code__), ordered, {**named, "out": out}
        )
        if found is not None:
            return found
    positional, rest = as_written(op, args)
    return positional, rest if out is None else {**rest, "out": out}


def users_function(op: Any, is_operator: bool) -> Callable:
    """Returns what users know an op by: `torch.add`, or `torch.Tensor.add` if they wrote `a + b`.

    That is the row's own function, or the composite of its name if that has the same parameters, and perhaps more: what
    there is by that name now, as programs replace methods.

    >>> from tensorgrad.overriding.function_modes import users_function
    >>> users_function(torch.mul.op, False) is torch.mul
    True
    """
    own = op.compiled.call
    found = getattr(Tensor, op.name, None) if is_operator else COMPOSITES.get(op.name)
    if found is None or found is own or (not is_operator and _users().get(op.name) is own):
        return own
    return found if _begins_with(found, tuple([p.name for p in op.params])) else own


@cache
def _begins_with(function: Callable, names: tuple[str, ...]) -> bool:
    """Whether these are the first parameters of a function."""
    return tuple(signature(function).parameters)[: len(names)] == names


def _users() -> dict[str, Any]:
    """Returns what users call as `torch.name`."""
    return vars(sys.modules["tensorgrad"])


def as_written(op: Any, args: tuple) -> tuple[tuple, dict[str, Any]]:
    """Splits an op's arguments into positional ones and keywords, and leaves out defaults.

    >>> from tensorgrad.overriding.function_modes import as_written
    >>> as_written(torch.mul.op, (torch.tensor(1), 2))
    ((tensor(1), 2), {})
    """
    function = op.compiled.call
    ordered = [p.name for p in op.params if not p.keyword]
    defaults = dict(zip(reversed(ordered), reversed(function.__defaults__ or ())))
    defaults.update(function.__kwdefaults__ or {})
    given = {p.name: value for p, value in zip(op.params, args)}
    named = {p.name: given[p.name] for p in op.params if p.keyword and not _is_default(given, p.name, defaults)}
    while ordered and _is_default(given, ordered[-1], defaults):
        ordered.pop()
    return tuple(given[name] for name in ordered), named


def _is_default(given: dict[str, Any], name: str, defaults: dict[str, Any]) -> bool:
    if name not in defaults or isinstance(given[name], Tensor):
        return False
    value, default = given[name], defaults[name]
    return value is default or (type(value) is type(default) and value == default)


def refused(func: Callable) -> TypeError:
    """Returns the error for a function that the mode, and then all others, declined."""
    return TypeError(
        f"Multiple dispatch failed for 'torch.{getattr(func, '__name__', func)}'; all __torch_function__ handlers "
        f"returned NotImplemented:\n\n  - mode object {LOCAL.function_modes[-1]!r}"
    )


def seen_by_modes(function: Callable) -> Callable:
    """Makes modes see a function that is not an op, as PyTorch's do. It costs nothing but a check while none is on.

    >>> from tensorgrad.overriding.function_modes import seen_by_modes
    >>> @seen_by_modes
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """
    from functools import wraps

    @wraps(function)
    def call_or_mode(*args: Any, **kwargs: Any) -> Any:
        if not LOCAL.function_modes:
            return function(*args, **kwargs)
        result = call(call_or_mode, args, kwargs)
        if result is NotImplemented:
            raise refused(call_or_mode)
        return result

    return call_or_mode
