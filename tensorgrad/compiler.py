"""`torch.compile` and `torch.compiler`: there is nothing to compile, so programs run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile(model: Any = None, **options: Any) -> Any:
    """Returns the function or module as it is (or, without one, a decorator that does); the options are accepted.

    >>> import tensorgrad as torch
    >>> @torch.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if model is None:
        return lambda function: function
    if not callable(model):
        raise TypeError(f"compile(): expected a function or a module, but got {type(model).__name__}")
    return model


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """Returns the function as it is, or a decorator that does.

    >>> import tensorgrad as torch
    >>> @torch.compiler.disable
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Callable) -> Callable:
    """Returns the function as it is.

    >>> import tensorgrad as torch
    >>> def double(x):
    ...     return 2 * x
    >>> torch.compiler.allow_in_graph(double)(torch.ones(2))
    tensor([2., 2.])
    """
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """Whether the running code is being compiled: never.

    >>> import tensorgrad as torch
    >>> torch.compiler.is_compiling()
    False
    """
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Accepted: nothing was compiled.

    >>> import tensorgrad as torch
    >>> torch.compiler.reset()
    """


def cudagraph_mark_step_begin() -> None:
    """Accepted: no graphs of kernels are recorded.

    >>> import tensorgrad as torch
    >>> torch.compiler.cudagraph_mark_step_begin()
    """


def list_backends(*args: Any) -> list[str]:
    """The compilers that `compile` could use: none.

    >>> import tensorgrad as torch
    >>> torch.compiler.list_backends()
    []
    """
    return []
