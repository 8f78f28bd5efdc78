"""What new nodes of a graph take over from the nodes that they are made of: `torch.fx.traceback`.

While a graph is run to make another one (`Transformer`, or `Interpreter` under `make_fx` or a tracer), nodes that are
created keep the notes of the node that is running, if `preserve_node_meta` says so.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from tensorgrad.system.per_thread import PerThread

if TYPE_CHECKING:
    from tensorgrad.fx.node import Node

__all__ = [
    "annotate", "annotate_fn", "format_stack", "get_current_meta", "has_preserved_node_meta", "preserve_node_meta",
    "set_current_meta", "set_stack_trace",
]  # fmt: skip

_COPIED = (
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id",
    "has_backward_hook", "quantization_tag", "_numeric_debug_handle", "custom", "partitioner_tag",
)  # fmt: skip


class _Current(PerThread):
    preserves = False
    meta: dict[str, Any] = {}  # noqa: RUF012  never changed in place


_CURRENT = _Current()


def has_preserved_node_meta() -> bool:
    """Returns whether new nodes keep the notes of those that they are made of."""
    return _CURRENT.preserves


def get_current_meta() -> dict[str, Any]:
    """Returns the notes of the node that is running."""
    return _CURRENT.meta


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A context in which new nodes keep the notes (`node.meta`) of the nodes that they are made of.

    >>> from tensorgrad.fx.traceback import preserve_node_meta
    >>> old = torch.fx.symbolic_trace(lambda x: x + 1)
    >>> for node in old.graph.nodes:
    ...     node.meta["custom"] = {"from": node.name}
    >>> with preserve_node_meta():
    ...     new = torch.fx.symbolic_trace(lambda x: torch.fx.Interpreter(old).run(x) * 2)
    >>> [(node.name, node.meta.get("custom")) for node in new.graph.nodes if node.op == "call_function"]
    [('add', {'from': 'add'}), ('mul', None)]
    """
    before = _CURRENT.preserves, _CURRENT.meta
    _CURRENT.preserves = enable
    try:
        yield
    finally:
        _CURRENT.preserves, _CURRENT.meta = before


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """A context in which a node is running, if notes are kept."""
    if not (_CURRENT.preserves and node.meta):
        yield
        return
    before, _CURRENT.meta = _CURRENT.meta, dict(node.meta)
    try:
        yield
    finally:
        _CURRENT.meta = before


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A context in which new nodes get notes of a program's own, in `node.meta["custom"]`, if notes are kept."""
    before = _CURRENT.meta
    _CURRENT.meta = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _CURRENT.meta = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable:
    """A decorator for functions that run within `annotate`."""

    def decorate(function: Callable) -> Callable:
        @wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate


def set_stack_trace(stack: list[str]) -> None:
    """Says where new nodes come from, if notes are kept: lines of a stack; none to say nothing."""
    if _CURRENT.preserves:
        rest = {key: value for key, value in _CURRENT.meta.items() if key != "stack_trace"}
        _CURRENT.meta = {**rest, "stack_trace": "".join(stack)} if stack else rest


def format_stack() -> list[str]:
    """Returns where the node that is running comes from, if notes are kept; else the stack of Python."""
    if _CURRENT.preserves:
        return [_CURRENT.meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


def hand_over(node: Node) -> None:
    """Gives a new node the notes of the node that is running, if they are kept."""
    if _CURRENT.preserves:
        meta = _CURRENT.meta
        if meta.get("stack_trace"):
            node.stack_trace = meta["stack_trace"]
        node.meta.update({field: copy.copy(meta[field]) for field in _COPIED if field in meta})
