"""The results of a profile, presented like PyTorch's: events, their sums by name, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tensorgrad.profiler.spans import MODULE, NODE, OP, REGION, Options, Span
from tensorgrad.profiler.table import table, time_text


class Interval(NamedTuple):
    """A start and an end time, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Returns the length of the interval, in microseconds."""
        return self.end - self.start


class Times:
    """Common base of events and averages: times as text, and zeros for devices, since only the CPU is measured."""

    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0
    use_device = None
    is_async = is_remote = is_legacy = False
    node_id = -1
    overload_name = ""
    count: int
    cpu_time_total: float
    self_cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """The time per call, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        """The time per call, with its unit."""
        return time_text(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """The time of all calls, with its unit."""
        return time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """The time of all calls without the time of nested events, with its unit."""
        return time_text(self.self_cpu_time_total)


class Event(Times):
    """One recorded event. Times are in microseconds; `cpu_children` are the events nested directly inside it.

    >>> with torch.autograd.profiler.profile() as prof, torch.autograd.profiler.record_function("outer"):
    ...     y = torch.ones(2).exp()
    >>> event = prof.function_events[0]
    >>> event.name, [child.name for child in event.cpu_children], event.cpu_time_total > 0
    ('outer', ['exp'], True)
    """

    count = 1

    def __init__(self, number: int, span: Span, zero: float):
        self.id, self.name, self.key, self.thread = number, span.name, span.name, span.thread
        self.category, self.input_shapes = span.category, span.shapes
        self.stack, self.flops, self.module = list(span.stack), span.flops, span.module
        self.sequence_nr, self.scope = span.sequence_nr, int(span.category == NODE)
        self.trace_name = span.name
        self.time_range = Interval((span.start - zero) * 1e6, (span.end - zero) * 1e6)
        self.cpu_time_total = self.self_cpu_time_total = self.time_range.elapsed_us()
        self.cpu_memory_usage = self.self_cpu_memory_usage = span.memory
        self.cpu_children: list[Event] = []
        self.cpu_parent: Event | None = None

    @property
    def is_user_annotation(self) -> bool:
        """Whether the event is a region that the program named."""
        return self.category == REGION

    def __repr__(self) -> str:
        return f"<FunctionEvent id={self.id} name={self.name} cpu_time={time_text(self.cpu_time)} thread={self.thread}>"


class Average(Times):
    """The sum of all events with one name (and optionally with the same input shapes or source lines)."""

    is_user_annotation = False

    def __init__(self, key: str, input_shapes: list | None = None, stack: Iterable[str] = ()):
        self.stack, self.flops = list(stack), 0
        self.key, self.input_shapes, self.count = key, input_shapes if input_shapes is not None else "", 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    def add(self, event: Any) -> Average:
        """Adds an event, or another average."""
        self.count += event.count
        self.flops += event.flops
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        return self

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={time_text(self.self_cpu_time_total)} "
            f"cpu_time={time_text(self.cpu_time)} count={self.count} input_shapes={self.input_shapes}>"
        )


class EventList(list):
    """Events, or their averages.

    >>> with torch.autograd.profiler.profile() as prof:
    ...     y = torch.ones(2).exp().exp()
    >>> events = prof.function_events
    >>> len(events), len(events.key_averages()), events.total_average().count
    (2, 1, 2)
    >>> print(events.table(sort_by="self_cpu_time_total", row_limit=1))
    -------  ------------  ...
       Name    Self CPU %  ...
    """

    def __init__(self, items: Iterable = (), options: Options = Options()):  # noqa: B008
        super().__init__(items)
        self.options = options

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the events' own times, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Sums the events by name, and optionally by input shapes or innermost source lines.

        All steps of a schedule are one entry. `group_by_overload_name` changes nothing: an op has one name here.
        """
        groups: dict[Any, Average] = {}
        for event in self:
            stack = event.stack[:group_by_stack_n]
            name = "ProfilerStep*" if event.key.startswith("ProfilerStep#") else event.key
            key = (name, event.is_user_annotation, str(event.input_shapes) if group_by_input_shapes else "", *stack)
            if key not in groups:
                groups[key] = Average(name, event.input_shapes if group_by_input_shapes else None, stack)
                groups[key].is_user_annotation = event.is_user_annotation
            groups[key].add(event)
        return EventList(groups.values(), self.options)

    def by_module(self) -> EventList:
        """Sums the events by module, with separate entries for the forward and the backward pass."""
        groups: dict[str, Average] = {}
        for event in self:
            if event.category == MODULE:
                groups.setdefault(event.module, Average(event.module)).add(event)
            elif event.category == NODE:
                keys = _around(event.module, " (backward)")
                for key in keys:
                    group = groups.setdefault(key, Average(key)).add(event)
                    if key is not keys[-1]:  # only the innermost module counts it as its own time
                        group.self_cpu_time_total -= event.self_cpu_time_total
        for event in self:
            if event.category == OP and event.flops and not any(e.category == OP and e.flops for e in _outside(event)):
                node = next((e for e in _outside(event) if e.category == NODE), None)
                keys = _around(event.module, "") if node is None else _around(node.module, " (backward)")
                for key in keys:
                    if key in groups:
                        groups[key].flops += event.flops
        return EventList(groups.values(), self.options)

    def total_average(self) -> Average:
        """Returns the sum of all events."""
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
        """Returns a table with a row for each entry.

        Args:
            sort_by: the attribute to sort by, in descending order: `cpu_time`, `cpu_time_total`,
                `self_cpu_time_total`, `count`, `cpu_memory_usage` or `self_cpu_memory_usage`.
            row_limit: the maximum number of rows; -1 for all.
            header: a title above the table.
            top_level_events_only: whether to leave out nested events.
            time_unit: "s", "ms" or "us" for all times; by default each time has a suitable unit.

        Raises:
            AttributeError: If there is no attribute `sort_by`.
        """
        rows = list(self)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            rows.sort(key=lambda event: -getattr(event, sort_by))
        return table(
            rows,
            self.self_cpu_time_total,
            memory=self.options.memory,
            flops=self.options.flops,
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
        )

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks to a file that tools for flame graphs can read.

        The file has a line for each event with a stack: the source lines, outermost first and separated by `;`, and
        the event's time in whole microseconds.

        Raises:
            ValueError: If the metric is unknown.
        """
        if metric not in METRICS:
            raise ValueError(f"metric should be one of: {METRICS}")
        written = str.maketrans(" ;\t\n", "____")
        lines = []
        for event in self:
            value = int(getattr(event, metric))
            if event.stack and value > 0:
                lines.append(";".join(line.translate(written) for line in reversed(event.stack)) + f" {value}\n")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines)

    def export_chrome_trace(self, path: Any) -> None:
        """Writes the events to a file for Chrome's trace viewer."""
        from tensorgrad.profiler.trace import write_chrome_trace

        write_chrome_trace(self, path, {})

    def __str__(self) -> str:
        return self.table()


def _around(module: str, ending: str) -> list[str]:
    """Returns the names of a module and the modules around it, outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[: i + 1]) + ending for i in range(len(parts))]


def _outside(event: Event) -> Iterator[Event]:
    """Yields the events around an event, innermost first."""
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


METRICS = ["self_cpu_time_total", "self_cuda_time_total"]


def nested(spans: list[Span], zero: float, options: Options) -> EventList:
    """Converts spans to events, ordered by their start and linked to the events nested in them."""
    events = EventList([], options)
    open_events: dict[int, list[Event]] = {}  # by thread, innermost last
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
    for event in reversed(events):  # ops have the size of their results; regions sum up what ran inside them
        inside = sum(child.cpu_memory_usage for child in event.cpu_children)
        event.cpu_memory_usage = max(event.cpu_memory_usage, inside)
        event.self_cpu_memory_usage = event.cpu_memory_usage - inside
        event.self_cpu_time_total = max(event.self_cpu_time_total, 0.0)
    return events
