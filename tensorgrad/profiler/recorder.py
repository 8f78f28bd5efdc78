"""The recorder of a profile: records ops, nodes of the backward pass, and regions that the program names."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.profiler.spans import NODE, OP, REGION, Options, Span
from tensorgrad.rows import switches
from tensorgrad.tensor import Tensor


class Recorder:
    """Collects spans from all threads, between `start` and `stop`."""

    def __init__(self, options: Options = Options()):  # noqa: B008
        self.options = options
        self.spans: list[Span] = []
        self.began = self.ended = 0.0
        self.paused = False
        self._modules: Any = None
        # The (stack, module) of the op that created each node.
        self._origins: weakref.WeakKeyDictionary[Node, tuple] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        """Starts recording."""
        if self.options.flops:  # imported now, so that the import time is not attributed to the program
            importlib.import_module("tensorgrad.utils.flop_counter")
        if self.options.modules:
            from tensorgrad.profiler.modules import ModuleSpans

            self._modules = ModuleSpans(self)
            self._modules.__enter__()
        self.began = time.perf_counter()
        RECORDERS.append(self)
        switches.observe(self._op, "profiler")
        engine.OBSERVERS.append(self._node)

    def stop(self) -> None:
        """Stops recording, unless `_disable_profiler` has."""
        if self not in RECORDERS:
            return
        engine.OBSERVERS.remove(self._node)
        switches.unobserve(self._op, "profiler")
        RECORDERS.remove(self)
        if self._modules is not None:
            self._modules.__exit__()
        self.ended = time.perf_counter()

    def add(self, name: str, category: str, start: float, end: float, shapes: list, **facts: Any) -> None:
        """Records a span of this thread, unless it started before the recorder."""
        if start >= self.began and not self.paused:
            self.spans.append(Span(name, category, start, end, threading.get_ident(), shapes, **facts))

    def _op(self, op: Any, args: tuple, result: Any, start: float, seconds: float) -> None:
        wanted = self.options
        facts: dict[str, Any] = {
            "memory": _new_bytes(result) if wanted.memory else 0,
            "flops": _flops(op, args, result) if wanted.flops else 0,
            "stack": _program_lines() if wanted.stack else (),
            "module": self._modules.innermost() if self._modules is not None else "",
        }
        node = _node_of(result)
        if node is not None:
            facts["sequence_nr"] = node.sequence_nr
            if wanted.stack or wanted.modules:
                self._origins[node] = facts["stack"], facts["module"]
        shapes = [_shape(a) for a in args] if wanted.shapes else []
        self.add(op.name, OP, start, start + seconds, shapes, **facts)

    def _node(self, node: Node, start: float, seconds: float) -> None:
        """Records a node of the backward pass, with the stack and the module of the op that created it."""
        stack, module = self._origins.get(node, ((), ""))
        shapes = [list(output[0]) for output in getattr(node, "outputs", ())] if self.options.shapes else []
        flops = _node_flops(node) if self.options.flops else 0
        facts = {"stack": stack, "module": module, "flops": flops, "sequence_nr": node.sequence_nr}
        self.add(node.name(), NODE, start, start + seconds, shapes, **facts)


RECORDERS: list[Recorder] = []


def _profiler_enabled() -> bool:
    """Returns whether a profile is recording.

    >>> torch.autograd._profiler_enabled()
    False
    >>> with torch.profiler.profile():
    ...     torch.autograd._profiler_enabled()
    True
    """
    return bool(RECORDERS)


def _disable_profiler() -> None:
    """Ends the recording of the profile that began last. What it has recorded so far is kept.

    Raises:
        RuntimeError: If none is recording.

    >>> with torch.profiler.profile() as prof:
    ...     x = torch.ones(2).exp()
    ...     torch.autograd._disable_profiler()
    ...     x = x.exp()
    >>> [event.name for event in prof.events()].count("exp")
    1
    """
    if not RECORDERS:
        raise RuntimeError("Can't disable profiler when it's not running")
    RECORDERS[-1].stop()


def _shape(value: Any) -> list:
    """Returns the shape of a tensor, the shapes of a list of tensors, or [] for anything else, like PyTorch."""
    if isinstance(value, Tensor):
        return list(value._array.shape)
    if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor) for v in value):
        return [list(v._array.shape) for v in value]
    return []


def _node_of(result: Any) -> Node | None:
    """Returns the node that an op created, or None if no graph was recorded."""
    for tensor in result if isinstance(result, tuple) else (result,):
        if isinstance(tensor, Tensor) and tensor._edge is not None and isinstance(tensor._edge[0], Node):
            return tensor._edge[0]
    return None


def _flops(op: Any, args: tuple, result: Any) -> int:
    from tensorgrad.utils import flop_counter

    return flop_counter.flops(flop_counter.flop_registry, op, args, result) or 0


def _node_flops(node: Node) -> int:
    """Returns the count for a node's own kernel, not including the ops it calls."""
    from tensorgrad.utils import flop_counter

    return 0 if GRAD.enabled else flop_counter.backward_flops(node) or 0


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _program_lines(most: int = 64) -> tuple[str, ...]:
    """Returns the running source lines outside this package, innermost first, in PyTorch's format."""
    lines: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(lines) < most:
        code = frame.f_code
        if not code.co_filename.startswith((_PACKAGE, "<tensorgrad")):
            lines.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(lines)


def _new_bytes(result: Any) -> int:
    """Returns the size in bytes of what an op returned, not counting views."""
    results = result if isinstance(result, tuple) else (result,)
    return sum(t._array.nbytes for t in results if isinstance(t, Tensor) and t._view is None)


class record_function:
    """Names a region of the program in all active profiles; can also be used as a decorator.

    >>> with torch.profiler.profile() as prof:
    ...     with torch.profiler.record_function("twice"):
    ...         y = torch.ones(2) + torch.ones(2)
    >>> [(event.key, event.count) for event in prof.key_averages() if event.key in ("twice", "add")]
    [('twice', 1), ('add', 1)]
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.began: list[float] = []  # a stack, as the same object may be entered recursively

    def __enter__(self) -> record_function:
        self.began.append(time.perf_counter())
        return self

    def __exit__(self, *exception: Any) -> None:
        start, end = self.began.pop(), time.perf_counter()
        for recorder in list(RECORDERS):
            stack = _program_lines() if recorder.options.stack else ()
            recorder.add(self.name, REGION, start, end, [], stack=stack)

    def __call__(self, function: Callable) -> Callable:
        """Wraps a function so that each call is a region with this name."""

        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return named
