"""The spans of time that a profile records, and its options."""

from __future__ import annotations

from typing import NamedTuple

# The categories of Chrome's trace.
OP, NODE, REGION, MODULE = "cpu_op", "backward", "user_annotation", "python_function"


class Span(NamedTuple):
    """Something that ran. `start` and `end` are times of `time.perf_counter`."""

    name: str
    category: str
    start: float
    end: float
    thread: int
    shapes: list
    memory: int = 0  # bytes of new results
    flops: int = 0
    stack: tuple[str, ...] = ()  # source lines of the program, innermost first
    module: str = ""  # the innermost module it ran in
    sequence_nr: int = -1  # of the node that the op created, or of the node that ran


class Options(NamedTuple):
    """What a recorder records besides names and times."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False
    flops: bool = False
    modules: bool = False
