"""`torch.cuda`'s queues of work, and marks in them. A stream of CuPy's is underneath, so CuPy's code follows, too."""

from __future__ import annotations

import ctypes
from typing import Any

from tensorgrad import devices
from tensorgrad.cuda.devices import current_device, device, index_of, is_available, module
from tensorgrad.storage.cuda import State

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream",
    "get_stream_from_external", "set_stream", "stream", "synchronize",
]  # fmt: skip


def synchronize(device=None) -> None:
    """Waits until the GPU has done everything it was given. Raises: RuntimeError without one.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.synchronize()  # before the clock is read
    """
    cuda = module().cuda
    with cuda.Device(index_of(device)):
        cuda.runtime.deviceSynchronize()
    if State.arrived is not None:
        State.arrived()


class Stream:
    """A queue of work on a GPU, done in order; queues do not wait for each other unless told to.

    Args:
        device: whose queue it is; the current GPU unless given.
        priority: lower numbers go first; what is out of the GPU's range counts as its end.

    Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
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
        self.stream: Any = given  # CuPy's
        own = options.get("device_index", given.device_id)
        self.device_index: int = current_device() if own < 0 else own

    @property
    def device(self) -> devices.device:
        """The GPU whose queue this is."""
        return devices.device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """The CUDA runtime's handle of the queue."""
        return self.stream.ptr

    @property
    def stream_id(self) -> int:
        """A number of the queue: the CUDA runtime's handle."""
        return self.stream.ptr

    @property
    def priority(self) -> int:
        """Lower numbers go first."""
        return int(self.stream.priority)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        """The priorities that there are, from the lowest to the highest."""
        return 0, -5

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        self.stream.synchronize()

    def query(self) -> bool:
        """Whether the queue is empty."""
        return bool(self.stream.done)

    def record_event(self, event: Event | None = None) -> Event:
        """Puts a mark (a new one unless given) into the queue and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is queued from now on waits for a mark."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What is queued from now on waits for everything that is in another queue now."""
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
    """What CuPy takes over a queue from."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


class ExternalStream(Stream):
    """A queue that another library made, by its CUDA handle; whoever made it keeps it alive.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     same = torch.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    """

    def __init__(self, stream_ptr: int, device=None, **options):
        cuda, index = module().cuda, index_of(device)
        with cuda.Device(index):
            made = cuda.Stream.from_external(_Handle(stream_ptr)) if stream_ptr else cuda.Stream.null
        super().__init__(stream=made, device_index=index)


class Event:
    """A mark in a queue, to measure time or to wait for. It is made when it is first recorded.

    Args:
        enable_timing: whether time is to be measured with it.
        blocking: whether `synchronize` sleeps instead of asking again and again.

    >>> import tensorgrad as torch
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
        self.event: Any = None  # CuPy's
        self.device_index = -1

    @property
    def device(self) -> devices.device | None:
        """The GPU that it was recorded on; None before."""
        return None if self.event is None else devices.device("cuda", self.device_index)

    @property
    def cuda_event(self) -> int:
        """The CUDA runtime's handle; 0 before it is recorded."""
        return 0 if self.event is None else self.event.ptr

    def record(self, stream: Stream | None = None) -> None:
        """Puts the mark into a queue (the current one). Raises: RuntimeError for one of another GPU than before."""
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
        """What is queued from now on (in the current queue) waits for the mark; for none that was not recorded."""
        if self.event is not None:
            (current_stream() if stream is None else stream).stream.wait_event(self.event)

    def synchronize(self) -> None:
        """Waits until the mark is reached."""
        if self.event is not None:
            self.event.synchronize()

    def query(self) -> bool:
        """Whether it has been reached; True for one that was not recorded."""
        return self.event is None or bool(self.event.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another.

        Raises: ValueError for marks that take no time or were not recorded, RuntimeError if one is not reached yet.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.event is None or end_event.event is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return float(module().cuda.get_elapsed_time(self.event, end_event.event))

    def ipc_handle(self):
        """Would show the mark to other processes. Raises: NotImplementedError."""
        raise NotImplementedError("torch.cuda.Event.ipc_handle: events are not shared between processes")

    @classmethod
    def from_ipc_handle(cls, device, handle):
        """Would take a mark of another process. Raises: NotImplementedError."""
        raise NotImplementedError("torch.cuda.Event.from_ipc_handle: events are not shared between processes")

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.cuda_event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


# --- the current one -------------------------------------------------------------------------------------------------


def current_stream(device=None) -> Stream:
    """The queue that work on a GPU (the current one) goes to. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.current_stream().synchronize()
    """
    cuda, index = module().cuda, index_of(device)
    with cuda.Device(index):
        return Stream(stream=cuda.get_current_stream(), device_index=index)


def default_stream(device=None) -> Stream:
    """The queue that work goes to unless told otherwise. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.default_stream().synchronize()
    """
    return Stream(stream=module().cuda.Stream.null, device_index=index_of(device))


def set_stream(stream: Stream | None) -> None:
    """Makes a queue, and its GPU, the current one; None changes nothing. `torch.cuda.stream` also changes it back.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_stream(torch.cuda.default_stream())
    """
    if stream is not None:
        module().cuda.Device(stream.device_index).use()
        stream.stream.use()


def get_stream_from_external(data_ptr: int, device=None) -> Stream:
    """A queue that another library made, by its CUDA handle.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     same = torch.cuda.get_stream_from_external(torch.cuda.current_stream().cuda_stream)
    """
    return ExternalStream(data_ptr, device)


class StreamContext:
    """A `with` block whose work goes to another queue; None changes nothing.

    >>> import tensorgrad as torch
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
        if source.device_index != self.stream.device_index:  # put back last: it also brings back the GPU
            self._before.append(source)
            source = current_stream(self.stream.device_index)
        self._before.append(source)
        set_stream(self.stream)

    def __exit__(self, *exception) -> None:
        while self._before:
            set_stream(self._before.pop())


def stream(stream: Stream | None) -> StreamContext:
    """A `with` block whose work goes to another queue; None changes nothing.

    >>> import tensorgrad as torch
    >>> side = torch.cuda.Stream() if torch.cuda.is_available() else None
    >>> with torch.cuda.stream(side):
    ...     x = torch.ones(2)
    """
    return StreamContext(stream)
