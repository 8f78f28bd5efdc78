"""`torch.autograd.profiler`: the older profiling API."""

from __future__ import annotations

from typing import Any

from tensorgrad.profiler.events import Average, EventList, nested
from tensorgrad.profiler.events import Event as FunctionEvent
from tensorgrad.profiler.recorder import Recorder, record_function
from tensorgrad.profiler.spans import Options
from tensorgrad.profiler.trace import write_chrome_trace

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "profile", "record_function"]


class profile:
    """Records what runs inside a `with` block, unless `enabled` is False.

    Args:
        enabled: whether to record anything.
        record_shapes: whether to record the shapes of inputs.
        profile_memory: whether to record the size of what ops return, not counting views.
        with_flops, with_stack, with_modules: see `torch.profiler.profile`.
        use_cuda, use_device and the others: accepted for compatibility and ignored.

    >>> with torch.autograd.profiler.profile() as prof:
    ...     y = torch.ones(2).exp()
    >>> [event.name for event in prof.function_events]
    ['exp']
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
    ):
        self.enabled = enabled
        self.recorder = Recorder(Options(record_shapes, profile_memory, with_stack, with_flops, with_modules))
        self.entered = False
        self.events: EventList | None = None

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self.recorder.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.enabled:
            self.recorder.stop()
            self.events = nested(self.recorder.spans, self.recorder.began, self.recorder.options)

    @property
    def function_events(self) -> EventList:
        """All recorded events. Raises: RuntimeError if the profile has not ended."""
        if self.events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.events

    @property
    def self_cpu_time_total(self) -> float:
        """The total recorded time, in microseconds."""
        return self.function_events.self_cpu_time_total

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Returns the events summed by name; see `EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> Average:
        """Returns the sum of all events."""
        return self.function_events.total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """Returns a table of the events; see `EventList.table`."""
        return self.function_events.table(sort_by, row_limit, **options)

    def export_chrome_trace(self, path: Any) -> None:
        """Writes the events to a file for Chrome's trace viewer."""
        write_chrome_trace(self.function_events, path, {})

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Writes the call stack and time of each op, for flame graphs; needs `with_stack=True`."""
        self.function_events.export_stacks(path, metric)

    def __str__(self) -> str:
        return repr(self) if self.events is None else str(self.events)


class emit_nvtx:
    """NVTX markers are not supported.

    Raises:
        NotImplementedError: When entered, unless `enabled` is False.

    >>> with torch.autograd.profiler.emit_nvtx():
    ...     pass
    Traceback (most recent call last):
    NotImplementedError: emit_nvtx is not supported: ...
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise NotImplementedError(
                f"{type(self).__name__} is not supported: use torch.profiler.profile() and export_chrome_trace()"
            )
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


class emit_itt(emit_nvtx):
    """ITT markers are not supported.

    Raises:
        NotImplementedError: When entered, unless `enabled` is False.

    >>> with torch.autograd.profiler.emit_itt():
    ...     pass
    Traceback (most recent call last):
    NotImplementedError: emit_itt is not supported: ...
    """
