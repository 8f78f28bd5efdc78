"""`torch.compile` and `torch.compiler`: nothing is compiled, so programs run unchanged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def compile(model: Any = None, **options: Any) -> Any:
    """Returns the function or module unchanged, or, without one, a decorator that does. Options are ignored.

    A line in the log says so, once.

    >>> @torch.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    _say()
    if model is None:
        return lambda function: function
    if not callable(model):
        raise TypeError(f"compile(): expected a function or a module, but got {type(model).__name__}")
    return model


@cache
def _say() -> None:
    """Tells those who wait for it to become faster that it will not."""
    import logging

    logging.getLogger("tensorgrad").warning(
        "torch.compile returns its argument unchanged: ops run as they are called, by kernels that are compiled already"
    )


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """Returns the function unchanged, or a decorator that does.

    >>> @torch.compiler.disable
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Callable) -> Callable:
    """Returns the function unchanged.

    >>> def double(x):
    ...     return 2 * x
    >>> torch.compiler.allow_in_graph(double)(torch.ones(2))
    tensor([2., 2.])
    """
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """Returns whether the code is being compiled: always False.

    >>> torch.compiler.is_compiling()
    False
    """
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Accepted for compatibility: there are no compiled functions.

    >>> torch.compiler.reset()
    """


def cudagraph_mark_step_begin() -> None:
    """Accepted for compatibility: no CUDA graphs are recorded.

    >>> torch.compiler.cudagraph_mark_step_begin()
    """


def list_backends(*args: Any) -> list[str]:
    """Returns the compilers available to `compile`: none.

    >>> torch.compiler.list_backends()
    []
    """
    return []


class ScriptModule:
    """PyTorch's class of compiled modules. There are none here; programs ask whether something is one.

    Raises: NotImplementedError. It cannot be made.

    >>> isinstance(torch.nn.ReLU(), torch.ScriptModule)
    False
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.ScriptModule: there are no compiled modules; use torch.jit.ScriptModule")
