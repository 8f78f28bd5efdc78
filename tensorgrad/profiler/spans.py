"""What a profile takes note of: spans of time, and what is known of each."""

from __future__ import annotations

from typing import NamedTuple

# The categories of Chrome's trace.
OP, NODE, REGION, MODULE = "cpu_op", "backward", "user_annotation", "python_function"


class Span(NamedTuple):
    """Something that ran: its name and category, when by `time.perf_counter`, in which thread, and with what."""

    name: str
    category: str
    start: float
    end: float
    thread: int
    shapes: list
    memory: int = 0  # bytes of new results
    flops: int = 0
    stack: tuple[str, ...] = ()  # the lines of the program that led here, the innermost first
    module: str = ""  # the innermost module that it ran in
    sequence_nr: int = -1  # of the node that an op left, or that ran


class Options(NamedTuple):
    """What a recorder takes note of, besides names and times."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False
    flops: bool = False
    modules: bool = False
