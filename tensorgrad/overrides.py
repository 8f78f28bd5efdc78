"""`torch.overrides`: lets user functions support classes that define `__torch_function__`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.dispatch.slow_path import DisableTorchFunctionSubclass
from tensorgrad.tensor import Tensor

__all__ = ["handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property"]

DisableTorchFunction = DisableTorchFunctionSubclass
_DEFAULT = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def _overrides(value: Any) -> bool:
    """Whether the class of a value overrides functions."""
    method = getattr(type(value), "__torch_function__", None)
    return method is not None and getattr(method, "__func__", None) is not _DEFAULT


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Returns whether the class of any argument defines its own `__torch_function__`.

    >>> import tensorgrad as torch
    >>> torch.overrides.has_torch_function((torch.ones(2), 3))
    False
    """
    return any(map(_overrides, relevant_args))


def has_torch_function_unary(argument: Any) -> bool:
    """Returns `has_torch_function` for one argument.

    >>> import tensorgrad as torch
    >>> torch.overrides.has_torch_function_unary(torch.ones(2))
    False
    """
    return _overrides(argument)


def has_torch_function_variadic(*arguments: Any) -> bool:
    """Returns `has_torch_function` for all arguments.

    >>> import tensorgrad as torch
    >>> torch.overrides.has_torch_function_variadic(torch.ones(2), torch.ones(2))
    False
    """
    return has_torch_function(arguments)


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the `__torch_function__` of the first argument that overrides the function, trying subclasses first.

    Raises:
        TypeError: If all of them return `NotImplemented`.

    >>> import tensorgrad as torch
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

    >>> import tensorgrad as torch
    >>> torch.overrides.is_tensor_like(torch.ones(2)), torch.overrides.is_tensor_like([1.0])
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Returns whether a function is a method of tensors.

    >>> import tensorgrad as torch
    >>> torch.overrides.is_tensor_method_or_property(torch.Tensor.add_)
    True
    """
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func
