"""`torch.cuda`'s streams and events. They wrap CuPy's streams, so code that uses CuPy follows them, too."""

from __future__ import annotations

import ctypes
from typing import Any

from tensorgrad import devices
from tensorgrad.cuda.devices import current_device, device, index_of, is_available, module
from tensorgrad.storage.cuda import State
from tensorgrad.storage.cuda.capture import refuse
from tensorgrad.streams import Event as _Event
from tensorgrad.streams import Stream as _Stream

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream",
    "get_stream_from_external", "set_stream", "stream", "synchronize",
]  # fmt: skip


def synchronize(device=None) -> None:
    """Waits until the GPU has finished all queued work.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.synchronize()  # before the clock is read
    """
    refuse("torch.cuda.synchronize")
    cuda = module().cuda
    with cuda.Device(index_of(device)):
        cuda.runtime.deviceSynchronize()
    if State.arrived is not None:
        State.arrived()


class Stream(_Stream):
    """A queue of work on a GPU, executed in order; streams run independently unless told to wait for each other.

    Args:
        device: The GPU of the stream; by default the current one.
        priority: Lower values run first; values outside the GPU's range are clamped.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     side = torch.cuda.Stream()
    ...     side.wait_stream(torch.cuda.current_stream())
    ...     with torch.cuda.stream(side):
    ...         x = torch.ones(2, device="cuda")
    ...     side.synchronize()
    """

    def __init__(self, device=None, priority: int = 0, **options):
        given = options.get("stream")
        if "stream_id" in options:
            given = ExternalStream(options["stream_id"], options.get("device_index")).stream
        if given is None:
            cuda = module().cuda
            negative = isinstance(device, int) and device < 0
            with cuda.Device(current_device() if negative else index_of(device)):
                given = cuda.Stream(non_blocking=True, priority=priority)
        self.stream: Any = given  # CuPy's stream
        own = options.get("device_index", given.device_id)
        self.device_index: int = current_device() if own < 0 else own

    @property
    def device(self) -> devices.device:
        """The GPU of the stream."""
        return devices.device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """The CUDA runtime's handle of the stream."""
        return self.stream.ptr

    @property
    def stream_id(self) -> int:
        """The id of the stream: the CUDA runtime's handle."""
        return self.stream.ptr

    @property
    def priority(self) -> int:
        """The priority: lower values run first."""
        return int(self.stream.priority)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        """Returns the lowest and the highest priority."""
        return 0, -5

    def synchronize(self) -> None:
        """Waits until all work in the stream is finished."""
        refuse("torch.cuda.Stream.synchronize")
        self.stream.synchronize()

    def query(self) -> bool:
        """Returns whether all work in the stream is finished."""
        refuse("torch.cuda.Stream.query")
        return bool(self.stream.done)

    def is_capturing(self) -> bool:
        """Returns whether the stream is being captured in a `torch.cuda.CUDAGraph`."""
        return bool(module().cuda.runtime.streamIsCapturing(self.stream.ptr))

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event (by default a new one) in the stream and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Makes work queued from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Makes work queued from now on wait for everything currently queued in another stream."""
        self.wait_event(stream.record_event())

    def __enter__(self):
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *exception):
        self._context.__exit__(*exception)

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (
            other.cuda_stream,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class _Handle:
    """A stream handle in the form that CuPy accepts."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


class ExternalStream(Stream):
    """A stream created by another library, given by its CUDA handle; its creator must keep it alive.

    >>> if torch.cuda.is_available():
    ...     same = torch.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    """

    def __init__(self, stream_ptr: int, device=None, **options):
        cuda, index = module().cuda, index_of(device)
        with cuda.Device(index):
            made = cuda.Stream.from_external(_Handle(stream_ptr)) if stream_ptr else cuda.Stream.null
        super().__init__(stream=made, device_index=index)


class Event(_Event):
    """A mark in a stream, for timing or synchronization. Created when it is first recorded.

    Args:
        enable_timing: Whether it can be used to measure time.
        blocking: Whether `synchronize` sleeps instead of busy-waiting.

    >>> if torch.cuda.is_available():
    ...     start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ...     start.record()
    ...     x = torch.ones(2, device="cuda") * 2
    ...     end.record()
    ...     end.synchronize()
    ...     milliseconds = start.elapsed_time(end)
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ):
        module()
        self.enable_timing, self.blocking, self.interprocess = enable_timing, blocking, interprocess
        self.event: Any = None  # CuPy's event
        self.device_index = -1

    @property
    def device(self) -> devices.device | None:
        """The GPU on which it was recorded; None before that."""
        return None if self.event is None else devices.device("cuda", self.device_index)

    @property
    def cuda_event(self) -> int:
        """The CUDA runtime's handle; 0 before it is recorded."""
        return 0 if self.event is None else self.event.ptr

    def record(self, stream: Stream | None = None) -> None:
        """Records the event in a stream (by default the current one).

        Raises:
            RuntimeError: If the GPU changes.
        """
        stream = current_stream() if stream is None else stream
        if self.event is None:
            cuda = module().cuda
            with cuda.Device(stream.device_index):
                self.event = cuda.Event(
                    block=self.blocking, disable_timing=not self.enable_timing, interprocess=self.interprocess
                )
            self.device_index = stream.device_index
        if self.device_index != stream.device_index:
            raise RuntimeError(
                f"Event device {self.device_index} does not match recording stream's device {stream.device_index}."
            )
        with device(self.device_index):
            self.event.record(stream.stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Makes work queued from now on wait for the event; no effect if it was not recorded."""
        if self.event is not None:
            (current_stream() if stream is None else stream).stream.wait_event(self.event)

    def synchronize(self) -> None:
        """Waits until the event has completed."""
        refuse("torch.cuda.Event.synchronize")
        if self.event is not None:
            self.event.synchronize()

    def query(self) -> bool:
        """Returns whether the event has completed; True if it was not recorded."""
        refuse("torch.cuda.Event.query")
        return self.event is None or bool(self.event.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds from this event to another.

        Raises:
            ValueError: If timing is disabled or an event was not recorded.
            RuntimeError: If one has not completed.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.event is None or end_event.event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return float(module().cuda.get_elapsed_time(self.event, end_event.event))

    def ipc_handle(self):
        """Would return a handle for other processes.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("torch.cuda.Event.ipc_handle: events are not shared between processes")

    @classmethod
    def from_ipc_handle(cls, device, handle):
        """Would open an event of another process.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("torch.cuda.Event.from_ipc_handle: events are not shared between processes")

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.cuda_event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


# --- the current stream ----------------------------------------------------------------------------------------------


def current_stream(device=None) -> Stream:
    """Returns the current stream of a GPU (by default the current GPU).

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.current_stream().synchronize()
    """
    cuda, index = module().cuda, index_of(device)
    with cuda.Device(index):
        return Stream(stream=cuda.get_current_stream(), device_index=index)


def default_stream(device=None) -> Stream:
    """Returns the default stream of a GPU.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.default_stream().synchronize()
    """
    return Stream(stream=module().cuda.Stream.null, device_index=index_of(device))


def set_stream(stream: Stream | None) -> None:
    """Makes a stream, and its GPU, the current one; no effect for None. `torch.cuda.stream` also restores them.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_stream(torch.cuda.default_stream())
    """
    if stream is not None:
        module().cuda.Device(stream.device_index).use()
        stream.stream.use()


def get_stream_from_external(data_ptr: int, device=None) -> Stream:
    """Returns a stream created by another library, given by its CUDA handle.

    >>> if torch.cuda.is_available():
    ...     same = torch.cuda.get_stream_from_external(torch.cuda.current_stream().cuda_stream)
    """
    return ExternalStream(data_ptr, device)


class StreamContext:
    """A context manager that selects another stream; no effect for None.

    >>> with torch.cuda.StreamContext(None):
    ...     x = torch.ones(2)
    """

    def __init__(self, stream: Stream | None):
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        if self.stream is None or not is_available():
            return
        source = current_stream()
        if source.device_index != self.stream.device_index:  # restored last, which also restores the GPU
            self._before.append(source)
            source = current_stream(self.stream.device_index)
        self._before.append(source)
        set_stream(self.stream)

    def __exit__(self, *exception) -> None:
        while self._before:
            set_stream(self._before.pop())


def stream(stream: Stream | None) -> StreamContext:
    """Returns a context manager that selects another stream; no effect for None.

    >>> side = torch.cuda.Stream() if torch.cuda.is_available() else None
    >>> with torch.cuda.stream(side):
    ...     x = torch.ones(2)
    """
    return StreamContext(stream)
