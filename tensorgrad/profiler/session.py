"""`torch.profiler.profile`: profiles a block of code, or selected steps of a long run."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.profiler.events import EventList, nested
from tensorgrad.profiler.recorder import Recorder, record_function
from tensorgrad.profiler.schedules import ProfilerAction, every_step
from tensorgrad.profiler.spans import Options
from tensorgrad.profiler.trace import write_chrome_trace

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)  # warm-up steps need no recording


class ProfilerActivity(enum.Enum):
    """Where something runs. GPU work is only seen from the CPU, as the time to launch it.

    >>> with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
    ...     y = torch.ones(2).exp()
    >>> prof.events()[-1].name
    'exp'
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3


def supported_activities() -> set[ProfilerActivity]:
    """Returns the activities that a profile can measure.

    >>> torch.profiler.supported_activities()
    {<ProfilerActivity.CPU: 0>}
    """
    return {ProfilerActivity.CPU}


class profile:
    """Records what runs inside a `with` block, or between `start()` and `stop()`.

    Args:
        activities: accepted for compatibility; always measures the CPU.
        schedule: which steps to record (`torch.profiler.schedule`); call `step()` at the end of each step.
        on_trace_ready: called with the profile when a recording is complete.
        record_shapes: whether to record the shapes of inputs.
        profile_memory: whether to record the size of what ops return, not counting views.
        with_stack: whether to record the source lines that led to each op; a step of the backward pass has those of
            its op. Needed by `key_averages(group_by_stack_n=...)` and `export_stacks`.
        with_flops: whether to count multiplications and additions, like `torch.utils.flop_counter`.
        with_modules: whether to record the calls of modules as well. Needed by `by_module`.
        acc_events: whether later cycles of a schedule add to the events of earlier ones instead of replacing them.
        experimental_config, execution_trace_observer, use_cuda: accepted for compatibility and ignored.
        custom_trace_id_callback: a function that returns a name for each trace; see `get_trace_id`.

    >>> x = torch.ones(2, 3)
    >>> with torch.profiler.profile(record_shapes=True) as prof:
    ...     for _ in range(3):
    ...         y = x * x
    >>> [(e.key, e.count, e.input_shapes) for e in prof.key_averages(group_by_input_shape=True)]
    [('mul', 3, [[2, 3], [2, 3]])]
    """

    def __init__(
        self,
        *,
        activities: Iterable | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ):
        # Programs may replace both while the profile runs.
        self.schedule, self.on_trace_ready = schedule or every_step, on_trace_ready
        self._names_steps = schedule is not None
        self.options = Options(record_shapes, profile_memory, with_stack, with_flops, with_modules)
        self.acc_events, self._name_trace = acc_events, custom_trace_id_callback
        self.step_num = 0
        self.action = self._action()
        self.notes: dict[str, Any] = {}
        self._recorder: Recorder | None = None
        self._trace_id: str | None = None
        self._region: record_function | None = None
        self._events: EventList | None = None

    def _action(self) -> ProfilerAction:
        return self.schedule(self.step_num)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the profile; recording starts if the schedule selects the current step."""
        self._begin()
        self._enter_step()

    def stop(self) -> None:
        """Stops the profile and completes the current recording."""
        self._leave_step()
        if self._recorder is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def step(self) -> None:
        """Moves to the next step of the schedule."""
        self._leave_step()
        before, self.step_num = self.action, self.step_num + 1
        self.action = self._action()
        complete = before is ProfilerAction.RECORD_AND_SAVE
        if self._recorder is not None and (complete or self.action not in _RECORDING):
            self._end()
            if complete and self.on_trace_ready is not None:
                self.on_trace_ready(self)
        self._begin()
        self._enter_step()

    def _begin(self) -> None:
        if self._recorder is None and self.action in _RECORDING:
            self._trace_id = self._name_trace() if self._name_trace is not None else uuid.uuid4().hex
            self._recorder = Recorder(self.options)
            self._recorder.start()

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        recorder.stop()
        events = nested(recorder.spans, recorder.began, self.options)
        if self.acc_events and self._events is not None:
            events[:0] = self._events
        self._events = events

    def _enter_step(self) -> None:
        if self._names_steps:
            self._region = record_function(f"ProfilerStep#{self.step_num}")
            self._region.__enter__()

    def _leave_step(self) -> None:
        if self._region is not None:
            self._region.__exit__()
            self._region = None

    def events(self) -> EventList:
        """Returns all recorded events, ordered by their start.

        Raises:
            RuntimeError: If no recording has been completed.
        """
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Returns the events summed by name; see `EventList.table`.

        Args:
            group_by_input_shape: whether calls with different input shapes are separate entries; needs
                `record_shapes`.
            group_by_stack_n: if not 0, calls that differ in this many innermost source lines are separate entries;
                needs `with_stack`.
            group_by_overload_name: accepted for compatibility: an op has one name here.
        """
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def by_module(self) -> EventList:
        """Returns the events summed by module, separately for the forward and the backward pass.

        Raises:
            RuntimeError: Without `with_modules=True`.

        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        >>> with torch.profiler.profile(with_modules=True) as prof:
        ...     model(torch.ones(1, 2)).sum().backward()
        >>> [(entry.key, entry.count) for entry in prof.by_module()][:2]
        [('Sequential', 1), ('Sequential.0', 1)]
        """
        if not self.options.modules:
            raise RuntimeError("by_module() needs profile(with_modules=True)")
        return self.events().by_module()

    def export_chrome_trace(self, path: Any) -> None:
        """Writes the events to a file for Chrome's trace viewer, compressed if its name ends with `.gz`."""
        write_chrome_trace(self.events(), path, self.notes)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Writes the call stack and time of each op, for flame graphs; needs `with_stack=True`."""
        self.events().export_stacks(path, metric)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable) -> None:
        """Pauses or resumes the recording of CPU activity.

        >>> with torch.profiler.profile() as prof:
        ...     prof.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])
        ...     y = torch.ones(2).exp()
        >>> len(prof.events())
        0
        """
        if self._recorder is not None and ProfilerActivity.CPU in activities:
            self._recorder.paused = not enable

    def prepare_trace(self) -> None:
        """Does nothing: no preparation is needed."""

    def start_trace(self) -> None:
        """Starts a recording, regardless of the schedule."""
        self.action = ProfilerAction.RECORD
        self._begin()

    def stop_trace(self) -> None:
        """Ends the recording, if there is one."""
        if self._recorder is not None:
            self._end()

    def get_trace_id(self) -> str | None:
        """Returns the name of the current or last trace; None before the first one."""
        return self._trace_id

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Sets the function that returns a name for each new trace."""
        self._name_trace = callback

    def add_metadata(self, key: str, value: str) -> None:
        """Adds metadata to the trace, as a string."""
        self.notes[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds metadata to the trace, given as a JSON string."""
        self.notes[key] = json.loads(value)

    preset_metadata_json = add_metadata_json
