"""What a profile listens to: ops, nodes of the backward pass, and regions that the program names."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node
from tensorgrad.ops import callpath, slowpath
from tensorgrad.tensor import Tensor

OP, NODE, REGION = "cpu_op", "backward", "user_annotation"  # the categories of Chrome's trace


class Span(NamedTuple):
    """Something that ran: its name and category, when by `time.perf_counter`, in which thread, and with what."""

    name: str
    category: str
    start: float
    end: float
    thread: int
    shapes: list
    memory: int  # bytes of new results


class Recorder:
    """Collects spans, from all threads, between `start` and `stop`."""

    def __init__(self, shapes: bool = False, memory: bool = False):
        self.shapes, self.memory = shapes, memory
        self.spans: list[Span] = []
        self.began = self.ended = 0.0

    def start(self) -> None:
        """Begins to listen."""
        self.began = time.perf_counter()
        RECORDERS.append(self)
        slowpath.OBSERVERS.append(self._op)
        engine.OBSERVERS.append(self._node)
        callpath.rare(+1)

    def stop(self) -> None:
        """Ends it."""
        callpath.rare(-1)
        engine.OBSERVERS.remove(self._node)
        slowpath.OBSERVERS.remove(self._op)
        RECORDERS.remove(self)
        self.ended = time.perf_counter()

    def add(self, name: str, category: str, start: float, end: float, shapes: list, memory: int = 0) -> None:
        """Takes note of a span of this thread, unless it began before the recorder did."""
        if start >= self.began:
            self.spans.append(Span(name, category, start, end, threading.get_ident(), shapes, memory))

    def _op(self, op: Any, args: tuple, result: Any, start: float, seconds: float) -> None:
        shapes = [_shape(a) for a in args] if self.shapes else []
        self.add(op.name.strip("_"), OP, start, start + seconds, shapes, _new_bytes(result) if self.memory else 0)

    def _node(self, node: Node, start: float, seconds: float) -> None:
        self.add(node.name(), NODE, start, start + seconds, [])


RECORDERS: list[Recorder] = []


def _shape(value: Any) -> list:
    """Of a tensor its shape, of a list of them theirs, of anything else nothing: as PyTorch shows inputs."""
    if isinstance(value, Tensor):
        return list(value._array.shape)
    if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor) for v in value):
        return [list(v._array.shape) for v in value]
    return []


def _new_bytes(result: Any) -> int:
    """The size of what an op returned, without views."""
    results = result if isinstance(result, tuple) else (result,)
    return sum(t._array.nbytes for t in results if isinstance(t, Tensor) and t._view is None)


class record_function:
    """Names a region of the program, for the profiles that are running; also a decorator.

    >>> import tensorgrad as torch
    >>> with torch.profiler.profile() as prof:
    ...     with torch.profiler.record_function("twice"):
    ...         y = torch.ones(2) + torch.ones(2)
    >>> [(event.key, event.count) for event in prof.key_averages() if event.key in ("twice", "add")]
    [('twice', 1), ('add', 1)]
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.began: list[float] = []  # a stack, as the same object may be entered again inside itself

    def __enter__(self) -> record_function:
        self.began.append(time.perf_counter())
        return self

    def __exit__(self, *exception: Any) -> None:
        start, end = self.began.pop(), time.perf_counter()
        for recorder in list(RECORDERS):
            recorder.add(self.name, REGION, start, end, [])

    def __call__(self, function: Callable) -> Callable:
        """`function`, its calls being regions of this name."""

        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return named
