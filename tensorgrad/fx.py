"""`torch.fx`: symbolic tracing is not included; its functions raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "replace_pattern",
    "symbolic_trace", "wrap",
]  # fmt: skip


def _refuse(name: str) -> Any:
    raise NotImplementedError(
        f"fx.{name} is not included: programs run as ordinary Python. To see the ops that run, use DEBUG=2 or "
        "torch.profiler; to see the graph of a result, follow its grad_fn"
    )


class _Absent:
    """The base of PyTorch's classes that exist in name only; they cannot be instantiated."""

    def __init__(self, *args: Any, **options: Any):
        _refuse(type(self).__name__)


class Graph(_Absent):
    """A traced program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Graph()
    Traceback (most recent call last):
    NotImplementedError: fx.Graph is not included: ...
    """


class GraphModule(_Absent):
    """A module made of a traced program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.GraphModule()
    Traceback (most recent call last):
    NotImplementedError: fx.GraphModule is not included: ...
    """


class Interpreter(_Absent):
    """Runs a traced program node by node.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Interpreter()
    Traceback (most recent call last):
    NotImplementedError: fx.Interpreter is not included: ...
    """


class Transformer(_Absent):
    """Rewrites a traced program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Transformer()
    Traceback (most recent call last):
    NotImplementedError: fx.Transformer is not included: ...
    """


class Node(_Absent):
    """One step of a traced program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Node()
    Traceback (most recent call last):
    NotImplementedError: fx.Node is not included: ...
    """


class Proxy(_Absent):
    """A value while a program is traced.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Proxy()
    Traceback (most recent call last):
    NotImplementedError: fx.Proxy is not included: ...
    """


class Tracer(_Absent):
    """Traces programs.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.Tracer()
    Traceback (most recent call last):
    NotImplementedError: fx.Tracer is not included: ...
    """


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    """Would trace a program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.symbolic_trace(torch.nn.ReLU())
    Traceback (most recent call last):
    NotImplementedError: fx.symbolic_trace is not included: ...
    """
    _refuse("symbolic_trace")


def replace_pattern(gm: Any, pattern: Any, replacement: Any) -> Any:
    """Would replace a pattern in a traced program.

    Raises:
        NotImplementedError: Always.

    >>> import tensorgrad as torch
    >>> torch.fx.replace_pattern(None, None, None)
    Traceback (most recent call last):
    NotImplementedError: fx.replace_pattern is not included: ...
    """
    _refuse("replace_pattern")


def wrap(fn_or_name: str | Callable) -> str | Callable:
    """Returns its argument: it excludes a function from tracing, and nothing is traced.

    >>> import tensorgrad as torch
    >>> torch.fx.wrap(len) is len
    True
    """
    return fn_or_name
