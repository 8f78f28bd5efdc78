"""`torch.profiler.profile`: a profile of some lines, or of chosen steps of a long run."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.profiler.events import EventList, nested
from tensorgrad.profiler.recorder import Recorder, record_function
from tensorgrad.profiler.schedules import ProfilerAction
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
        with_stack, with_flops, with_modules, experimental_config, acc_events, use_cuda and the like: accepted; they
            add nothing.

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
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.step_num = 0
        self.action = self._action()
        self.notes: dict[str, Any] = {}
        self._recorder: Recorder | None = None
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
            self._recorder = Recorder(self.record_shapes, self.profile_memory)
            self._recorder.start()

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        recorder.stop()
        self._events = nested(recorder.spans, recorder.began, self.profile_memory)

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
        """What was recorded, summed by name; see `EventList.table`."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: Any) -> None:
        """Writes the events to a file for Chrome's trace viewer, compressed if its name ends with `.gz`."""
        write_chrome_trace(self.events(), path, self.notes)

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a note to the trace."""
        self.notes[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a note to the trace that is JSON itself."""
        self.notes[key] = json.loads(value)

    preset_metadata_json = add_metadata_json
