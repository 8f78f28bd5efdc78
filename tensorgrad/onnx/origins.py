"""Which modules and lines of a program an operator comes from: texts beside each node of a file, as PyTorch's have."""

from __future__ import annotations

import linecache
import sys
from typing import Any

from tensorgrad.capture.recording import record
from tensorgrad.export.module_calls import ModuleCalls
from tensorgrad.fx import Node
from tensorgrad.nn import Module

_MODULES, _TRACE = "nn_module_stack", "stack_trace"  # in the `meta` of a recording's nodes, as torch.export has them


class Origins:
    """Notes with each node of a recording, within a `with` block, what the program was doing.

    Args:
        program: a module whose calls, and those of the modules in it, are followed; or a function.
    """

    def __init__(self, program: Any) -> None:
        self._calls = ModuleCalls(program) if isinstance(program, Module) else None

    def __enter__(self) -> Origins:
        if self._calls is not None:
            self._calls.begin(lambda value: value)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._calls is not None:
            self._calls.end()

    def note(self, node: Node) -> None:
        """Called with each new node."""
        node.meta[_TRACE] = _lines()
        node.meta[_MODULES] = self._calls.stack() if self._calls is not None else {}


def texts(node: Node) -> dict[str, str]:
    """What a file says of the operators that a node of a recording became; nothing of a node that was not noted."""
    if _TRACE not in node.meta:
        return {}
    target = node._pretty_print_target(node.target)
    scopes = [*node.meta[_MODULES].values(), (node.name, target)]
    return {
        "namespace": "/".join(f"{path}: {kind}" for path, kind in scopes),
        "pkg.torch.onnx.class_hierarchy": str([kind for _, kind in scopes]),
        "pkg.torch.onnx.fx_node": str(node.format_node()),
        "pkg.torch.onnx.name_scopes": str([path for path, _ in scopes]),
        "pkg.torch.onnx.stack_trace": node.meta[_TRACE],
    }


def _lines() -> str:
    """Where the methods `forward` are that are running, in the form of a traceback; without any, the program's lines.

    A whole traceback would be a large part of a small model's file.
    """
    forward, others = [], []
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not record.__code__:
        code = frame.f_code
        if code.co_name == "forward":
            forward.append(frame)
        elif not frame.f_globals.get("__name__", "").startswith("tensorgrad."):
            others.append(frame)
        frame = frame.f_back
    lines = []
    for frame in reversed(forward or others):
        file, line = frame.f_code.co_filename, frame.f_lineno
        lines.append(f'File "{file}", line {line}, in {frame.f_code.co_name}')
        text = linecache.getline(file, line).strip()
        lines += [f"  {text}"] if text else []
    return "\n  ".join(lines)
