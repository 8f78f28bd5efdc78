"""`cupy.cuda`'s streams and events. Work is done at once, unless a test says that a stream is busy.

`with busy(stream):` lets everything that is recorded in it meanwhile be unfinished until the block ends, as on a GPU
that has much to do. `stream.waited` says which events it was told to wait for.
"""

from __future__ import annotations

import contextlib
import itertools
import time

from tests.emulator import graphs
from tests.emulator.runtime import CURRENT, DEVICES, CUDARuntimeError

_handles = itertools.count(0x7000_0000, 16)


class _Base:
    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id
        self.busy, self.waited = False, []

    def _check_device(self) -> int:
        device = CURRENT.device if self.device_id < 0 else self.device_id
        if device != CURRENT.device:
            raise RuntimeError(
                f"The device that the stream is created on ({device}) does not match with the current device "
                f"({CURRENT.device})"
            )
        return device

    def use(self):
        _streams()[self._check_device()] = self
        return self

    def __enter__(self):
        device = self._check_device()
        CURRENT.entered = [*getattr(CURRENT, "entered", []), (device, self)]
        return self.use()

    def __exit__(self, *_):
        """Returns to the stream of the block around this one, or else to the default stream, as CuPy does.

        A stream that was made the current one by `use()` before the block is forgotten.
        """
        *CURRENT.entered, (device, _) = CURRENT.entered
        around = [stream for other, stream in CURRENT.entered if other == device]
        _streams()[device] = around[-1] if around else Stream.null

    @property
    def done(self):
        graphs.check_stream(self.ptr)
        return not self.busy

    def synchronize(self):
        graphs.check_stream(self.ptr)
        self.busy = False

    def is_capturing(self):
        return graphs.streamIsCapturing(self.ptr)

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.waited.append(event)
        capture = event.capture
        if capture in graphs.CAPTURES:
            if self.ptr == capture.stream and event.stream.ptr != self.ptr:
                capture.streams[event.stream.ptr] = False
            elif self.ptr not in capture.streams:
                capture.streams[self.ptr] = True
        elif graphs.capture_of(self.ptr) is not None and event.stream is not None:
            raise graphs.invalid(graphs.capture_of(self.ptr))  # an event of work that is not captured

    @property
    def is_non_blocking(self):
        return getattr(self, "non_blocking", False)

    def __cuda_stream__(self):
        return 0, self.ptr

    def __eq__(self, other):
        return isinstance(other, _Base) and self.ptr == other.ptr

    def __hash__(self):
        return self.ptr

    def __repr__(self):
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"


class Stream(_Base):
    """A queue of work."""

    null: Stream
    ptds: Stream

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.non_blocking, self.priority = non_blocking, max(-5, min(0, priority or 0))
        alone = null or ptds
        super().__init__(0 if null else 2 if ptds else next(_handles), -1 if alone else CURRENT.device)

    @classmethod
    def from_external(cls, obj):
        version, ptr = obj.__cuda_stream__()
        assert version == 0
        stream = cls.__new__(cls)
        stream.non_blocking, stream.priority = False, 0
        _Base.__init__(stream, ptr, CURRENT.device)
        stream._foreign_stream_ref = obj
        return stream


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)


@contextlib.contextmanager
def busy(stream):
    """A `with` block in which a stream of CuPy's has unfinished work."""
    stream.busy = True
    try:
        yield
    finally:
        stream.busy = False


class Event:
    """A moment in a stream."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.disable_timing, self.ptr = disable_timing, next(_handles)
        self.time, self.stream, self.device_id = None, None, CURRENT.device
        self.capture = None

    def record(self, stream=None):
        stream = get_current_stream() if stream is None else stream
        where = CURRENT.device if stream.device_id < 0 else stream.device_id
        if where != self.device_id:
            raise CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: invalid resource handle")
        self.time, self.stream = time.perf_counter(), stream
        self.capture = graphs.capture_of(stream.ptr)

    def _check(self):
        if self.capture in graphs.CAPTURES:
            raise graphs.invalid(self.capture)
        graphs.check_unsafe()

    @property
    def done(self):
        self._check()
        return self.stream is None or not self.stream.busy

    def synchronize(self):
        self._check()
        if self.stream is not None:
            self.stream.synchronize()


def _streams():
    if not hasattr(CURRENT, "streams"):
        CURRENT.streams = [Stream.null] * DEVICES
    return CURRENT.streams


def get_current_stream(device_id=-1):
    return _streams()[CURRENT.device if device_id < 0 else device_id]


def get_elapsed_time(start_event, end_event):
    if start_event.disable_timing or end_event.disable_timing or None in (start_event.time, end_event.time):
        raise CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: invalid resource handle")
    return (end_event.time - start_event.time) * 1e3
