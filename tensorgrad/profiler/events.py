"""What was recorded, as PyTorch presents it: events, their sums by name, and a table of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorgrad.profiler.recorder import REGION, Span


class Interval(NamedTuple):
    """From when to when, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


class Event:
    """One thing that ran. Times are in microseconds; `cpu_children` are the events directly inside.

    >>> import tensorgrad as torch
    >>> with torch.autograd.profiler.profile() as prof, torch.autograd.profiler.record_function("outer"):
    ...     y = torch.ones(2).exp()
    >>> event = prof.function_events[0]
    >>> event.name, [child.name for child in event.cpu_children], event.cpu_time_total > 0
    ('outer', ['exp'], True)
    """

    count = 1
    device_time = device_time_total = self_device_time_total = 0.0  # nothing runs elsewhere
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0

    def __init__(self, number: int, span: Span, zero: float):
        self.id, self.name, self.key, self.thread = number, span.name, span.name, span.thread
        self.category, self.input_shapes = span.category, span.shapes
        self.time_range = Interval((span.start - zero) * 1e6, (span.end - zero) * 1e6)
        self.cpu_time_total = self.self_cpu_time_total = self.time_range.elapsed_us()
        self.cpu_memory_usage = self.self_cpu_memory_usage = span.memory
        self.cpu_children: list[Event] = []
        self.cpu_parent: Event | None = None

    @property
    def cpu_time(self) -> float:
        """The time per call, which is all of it."""
        return self.cpu_time_total

    @property
    def is_user_annotation(self) -> bool:
        """Whether the program named it."""
        return self.category == REGION

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={spoken_time(self.cpu_time)} thread={self.thread}>"
        )


class Average:
    """All events of one name (and, if asked for, of the same input shapes)."""

    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0

    def __init__(self, key: str, input_shapes: list | None = None):
        self.key, self.input_shapes, self.count = key, input_shapes if input_shapes is not None else "", 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    def add(self, event: Any) -> Average:
        """Counts an event, or other such sums, in."""
        self.count += event.count
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        return self

    @property
    def cpu_time(self) -> float:
        """The time per call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={spoken_time(self.self_cpu_time_total)} "
            f"cpu_time={spoken_time(self.cpu_time)} count={self.count} input_shapes={self.input_shapes}>"
        )


class EventList(list):
    """Events, or their averages.

    >>> import tensorgrad as torch
    >>> with torch.autograd.profiler.profile() as prof:
    ...     y = torch.ones(2).exp().exp()
    >>> events = prof.function_events
    >>> len(events), len(events.key_averages()), events.total_average().count
    (2, 1, 2)
    >>> print(events.table(sort_by="self_cpu_time_total", row_limit=1))
    ------------  ------------...
            Name    Self CPU %...
    """

    def __init__(self, items: Iterable = (), memory: bool = False):
        super().__init__(items)
        self.memory = memory

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the events' own times, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """One entry for all events of a name; or of a name and the same input shapes."""
        groups: dict[Any, Average] = {}
        for event in self:
            key = (event.key, str(event.input_shapes) if group_by_input_shape else "")
            if key not in groups:
                groups[key] = Average(event.key, event.input_shapes if group_by_input_shape else None)
            groups[key].add(event)
        return EventList(groups.values(), self.memory)

    def total_average(self) -> Average:
        """Everything together."""
        total = Average("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """A table with a row for each entry.

        Args:
            sort_by: the name of what to sort by, the largest first: `cpu_time`, `cpu_time_total`,
                `self_cpu_time_total`, `count`, `cpu_memory_usage`, `self_cpu_memory_usage`.
            time_unit: "s", "ms" or "us" for all times; otherwise each has the one that suits it.

        Raises: AttributeError for another `sort_by`.
        """
        rows = list(self)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            rows.sort(key=lambda event: -getattr(event, sort_by))
        total = self.self_cpu_time_total or 1.0
        columns: list[tuple[str, Any]] = [
            ("Self CPU %", lambda e: f"{100 * e.self_cpu_time_total / total:.2f}%"),
            ("Self CPU", lambda e: spoken_time(e.self_cpu_time_total, time_unit)),
            ("CPU total %", lambda e: f"{100 * e.cpu_time_total / total:.2f}%"),
            ("CPU total", lambda e: spoken_time(e.cpu_time_total, time_unit)),
            ("CPU time avg", lambda e: spoken_time(e.cpu_time, time_unit)),
        ]
        if self.memory:
            columns += [
                ("CPU Mem", lambda e: spoken_bytes(e.cpu_memory_usage)),
                ("Self CPU Mem", lambda e: spoken_bytes(e.self_cpu_memory_usage)),
            ]
        columns.append(("# of Calls", lambda e: str(e.count)))
        if any(e.input_shapes for e in rows):
            columns.append(("Input Shapes", lambda e: _shortened(str(e.input_shapes), max_shapes_column_width)))
        cells = [
            ["Name", *(title for title, _ in columns)],
            *([_shortened(e.key, max_name_column_width), *(show(e) for _, show in columns)] for e in rows[:row_limit]),
        ]
        widths = [max(12, *(len(row[i]) for row in cells)) for i in range(len(cells[0]))]
        rule = "  ".join("-" * width for width in widths)
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]
        above = ["=" * len(rule), header] if header is not None else []
        below = f"Self CPU time total: {spoken_time(self.self_cpu_time_total, time_unit)}"
        return "\n".join([*above, rule, lines[0], rule, *lines[1:], rule, below]) + "\n"

    def __str__(self) -> str:
        return self.table()


def nested(spans: list[Span], zero: float, memory: bool) -> EventList:
    """Spans as events in the order in which they began, each knowing what ran inside of it."""
    events = EventList([], memory)
    open_events: dict[int, list[Event]] = {}  # by thread, the innermost last
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        event = Event(len(events), span, zero)
        stack = open_events.setdefault(span.thread, [])
        while stack and stack[-1].time_range.end <= event.time_range.start:
            stack.pop()
        if stack:
            parent = event.cpu_parent = stack[-1]
            parent.cpu_children.append(event)
            parent.self_cpu_time_total -= event.cpu_time_total
        stack.append(event)
        events.append(event)
    for event in reversed(events):  # an op's own results were counted; a region has those of what ran in it
        inside = sum(child.cpu_memory_usage for child in event.cpu_children)
        event.cpu_memory_usage = max(event.cpu_memory_usage, inside)
        event.self_cpu_memory_usage = event.cpu_memory_usage - inside
        event.self_cpu_time_total = max(event.self_cpu_time_total, 0.0)
    return events


def spoken_time(microseconds: float, unit: str | None = None) -> str:
    """A time with its unit: `1.250ms`."""
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def spoken_bytes(count: int) -> str:
    """A size with its unit: `1.50 KB`."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
