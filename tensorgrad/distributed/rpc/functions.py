"""Decorators of functions that other processes call: `torch.distributed.rpc.functions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["async_execution"]

RETURNS_FUTURE = "_wrapped_async_rpc_function"  # marks functions whose answer is what their future is set to


def async_execution(fn: Callable) -> Callable:
    """Says that a function returns a `torch.futures.Future`: the caller gets its value, and no thread waits for it.

    >>> @torch.distributed.rpc.functions.async_execution
    ... def later(x):
    ...     future = torch.futures.Future()
    ...     future.set_result(x + 1)
    ...     return future
    >>> later(1).wait()
    2
    """

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(wrapper, RETURNS_FUTURE, fn)
    return wrapper
