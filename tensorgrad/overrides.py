"""`torch.overrides`: lets user functions support classes that define `__torch_function__`, and modes see all ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.dispatch.guard import ask_first
from tensorgrad.dispatch.slow_path import DisableTorchFunction, DisableTorchFunctionSubclass
from tensorgrad.rows.switches import LOCAL, switch
from tensorgrad.tensor import Tensor, disabled_torch_function

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip

_DEFAULT = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def _overrides(value: Any) -> bool:
    """Whether the class of a value overrides functions."""
    method = getattr(type(value), "__torch_function__", None)
    if method is None or method is disabled_torch_function:
        return False
    return getattr(method, "__func__", None) is not _DEFAULT


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Returns whether the class of any argument defines its own `__torch_function__`.

    >>> torch.overrides.has_torch_function((torch.ones(2), 3))
    False
    """
    return any(map(_overrides, relevant_args))


def has_torch_function_unary(argument: Any) -> bool:
    """Returns `has_torch_function` for one argument.

    >>> torch.overrides.has_torch_function_unary(torch.ones(2))
    False
    """
    return _overrides(argument)


def has_torch_function_variadic(*arguments: Any) -> bool:
    """Returns `has_torch_function` for all arguments.

    >>> torch.overrides.has_torch_function_variadic(torch.ones(2), torch.ones(2))
    False
    """
    return has_torch_function(arguments)


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the `__torch_function__` of the first argument that overrides the function, trying subclasses first.

    Raises:
        TypeError: If all of them return `NotImplemented`.

    >>> class Named:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return func.__name__
    >>> torch.overrides.handle_torch_function(torch.add, (Named(),), Named(), 1)
    'add'
    """
    types: list[type] = []
    for value in relevant_args:
        if _overrides(value) and type(value) not in types:
            at = next((i for i, t in enumerate(types) if issubclass(type(value), t)), len(types))
            types.insert(at, type(value))
    for cls in types:
        result = cls.__torch_function__(public_api, tuple(types), args, kwargs)  # type: ignore[attr-defined]
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for {public_api.__module__}.{public_api.__name__} on types that implement "
        f"__torch_function__: {[t.__name__ for t in types]}"
    )


def is_tensor_like(inp: Any) -> bool:
    """Returns whether a value is a tensor, or its class defines `__torch_function__`.

    >>> torch.overrides.is_tensor_like(torch.ones(2)), torch.overrides.is_tensor_like([1.0])
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Returns whether a function is a method of tensors.

    >>> torch.overrides.is_tensor_method_or_property(torch.Tensor.add_)
    True
    """
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Any) -> str | None:
    """Returns a name of a function for people to read; None if it has none.

    >>> torch.overrides.resolve_name(torch.Tensor.relu)
    'torch.Tensor.relu'
    """
    name = getattr(f, "__name__", None)
    if name is None:
        return None
    if is_tensor_method_or_property(f):
        return f"torch.Tensor.{name}"
    return "torch" + f"{getattr(f, '__module__', '')}.{name}".removeprefix("tensorgrad")


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """Makes a function one that classes with `__torch_function__` may override.

    Args:
        dispatcher: takes the function's arguments and returns those whose class may override it.

    >>> @torch.overrides.wrap_torch_function(lambda x: (x,))
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """

    def decorate(function: Callable) -> Callable:
        from functools import wraps

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


class TorchFunctionMode:
    """A context in which a method of yours is called in place of every op.

    Within `__torch_function__` the mode itself is off, and those of enclosing `with` blocks are still on: call the
    function to run the op, or pass it on to them. Modes see functions as they are called. A method that is made of
    several ops (`x.norm()`) is seen as those; attributes (`x.shape`) and methods that leave tensors (`x.item()`) are
    not seen.

    >>> class Names(torch.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> x = torch.ones(2)
    >>> with Names():
    ...     y = x.exp() + 1
    exp
    add
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called in place of `func(*args, **kwargs)`; returns the result, or `NotImplemented`.

        Args:
            func: the function.
            types: the classes of the arguments that override functions.
            args: its positional arguments.
            kwargs: its keyword arguments.

        Raises:
            NotImplementedError: If a mode does not define it.
        """
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        ask_first()
        LOCAL.function_modes = (*LOCAL.function_modes, self)
        switch("torch function mode", True)
        return self

    def __exit__(self, *exception: Any) -> None:
        LOCAL.function_modes = LOCAL.function_modes[:-1]
        switch("torch function mode", False)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing.

    >>> with torch.overrides.BaseTorchFunctionMode():
    ...     print(torch.ones(2) + 1)
    tensor([2., 2.])
    """

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function."""
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    """Returns the innermost mode."""
    return LOCAL.function_modes[-1] if LOCAL.function_modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    """Returns all modes, the innermost last."""
    return list(LOCAL.function_modes)
