"""`torch.profiler.profile`: a profile of some lines, or of chosen steps of a long run."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.profiler.events import EventList, nested
from tensorgrad.profiler.recorder import Recorder, record_function
from tensorgrad.profiler.schedules import ProfilerAction
from tensorgrad.profiler.spans import Options
from tensorgrad.profiler.trace import write_chrome_trace

_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)  # (there is nothing to warm up)


class ProfilerActivity(enum.Enum):
    """Where something runs. What runs on a GPU is seen from the CPU only, as the time to launch it.

    >>> import tensorgrad as torch
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
    """What a profile can measure.

    >>> import tensorgrad as torch
    >>> torch.profiler.supported_activities()
    {<ProfilerActivity.CPU: 0>}
    """
    return {ProfilerActivity.CPU}


class profile:
    """Records what runs inside a `with` block, or between `start()` and `stop()`.

    Args:
        activities: accepted; the CPU is measured.
        schedule: which steps to record (`torch.profiler.schedule`); then `step()` says that a step has ended.
        on_trace_ready: a function of the profile, called when a recording is complete.
        record_shapes: keep the shapes of inputs.
        profile_memory: keep the size of what ops return, views apart.
        with_stack: keep the lines of the program that led to each op; a step of the backward pass has those of the op
            that it belongs to. For `key_averages(group_by_stack_n=...)` and `export_stacks`.
        with_flops: count multiplications and additions, as `torch.utils.flop_counter` does.
        with_modules: record the calls of modules as well, for `by_module`.
        acc_events: a schedule's later cycles add to the events of the earlier ones, rather than replace them.
        experimental_config, execution_trace_observer, use_cuda: accepted; they add nothing.
        custom_trace_id_callback: a function that names each trace; see `get_trace_id`.

    >>> import tensorgrad as torch
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
        self.rule, self.on_trace_ready = schedule, on_trace_ready
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
        return ProfilerAction.RECORD if self.rule is None else self.rule(self.step_num)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins: to record, if the present step is one to be recorded."""
        self._begin()
        self._enter_step()

    def stop(self) -> None:
        """Ends; what was being recorded is complete now."""
        self._leave_step()
        if self._recorder is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the schedule begins."""
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
        if self.rule is not None:
            self._region = record_function(f"ProfilerStep#{self.step_num}")
            self._region.__enter__()

    def _leave_step(self) -> None:
        if self._region is not None:
            self._region.__exit__()
            self._region = None

    def events(self) -> EventList:
        """Everything that was recorded, in the order in which it began.

        Raises: RuntimeError if nothing has been recorded to the end.
        """
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """What was recorded, summed by name; see `EventList.table`.

        Args:
            group_by_input_shape: the same op with other shapes is another entry; needs `record_shapes`.
            group_by_stack_n: so is one called from elsewhere, by that many lines; needs `with_stack`.
        """
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def by_module(self) -> EventList:
        """What was recorded, summed by module, and by module in the backward pass; needs `with_modules=True`.

        Raises: RuntimeError without it.

        >>> import tensorgrad as torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        >>> with torch.profiler.profile(with_modules=True) as prof:
        ...     model(torch.ones(1, 2)).sum().backward()
        >>> [(entry.key, entry.count) for entry in prof.by_module()][:2]
        [('Sequential', 1), ('Sequential.0', 1)]
        """
        if not self.options.modules:
            raise RuntimeError("by_module() needs a profile(with_modules=True)")
        return self.events().by_module()

    def export_chrome_trace(self, path: Any) -> None:
        """Writes the events to a file for Chrome's trace viewer, compressed if its name ends with `.gz`."""
        write_chrome_trace(self.events(), path, self.notes)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Writes the lines that led to each op, with its time, for flame graphs; needs `with_stack=True`."""
        self.events().export_stacks(path, metric)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable) -> None:
        """Stops taking notes of what runs on the CPU, or starts again, in the middle of a recording.

        >>> import tensorgrad as torch
        >>> with torch.profiler.profile() as prof:
        ...     prof.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])
        ...     y = torch.ones(2).exp()
        >>> len(prof.events())
        0
        """
        if self._recorder is not None and ProfilerActivity.CPU in activities:
            self._recorder.paused = not enable

    def prepare_trace(self) -> None:
        """Nothing needs to be prepared."""

    def start_trace(self) -> None:
        """Begins a recording, whatever the schedule says."""
        self.action = ProfilerAction.RECORD
        self._begin()

    def stop_trace(self) -> None:
        """Ends it."""
        if self._recorder is not None:
            self._end()

    def get_trace_id(self) -> str | None:
        """The name of the trace that is being recorded, or was last; None before."""
        return self._trace_id

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Names the traces that begin from now on by what the function returns."""
        self._name_trace = callback

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a note to the trace."""
        self.notes[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a note to the trace that is JSON itself."""
        self.notes[key] = json.loads(value)

    preset_metadata_json = add_metadata_json
