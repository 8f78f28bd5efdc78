"""`torch.cpu`: the device functions that device-independent programs call. The CPU is one device that runs in order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """A stand-in for a stream: on the CPU, work is finished when a call returns.

    >>> torch.cpu.Stream().wait_stream(torch.cpu.current_stream())
    """

    def __init__(self, priority: int = -1):
        pass

    def wait_stream(self, stream: Stream) -> None:
        """Returns immediately: there is nothing to wait for."""

    def record_event(self) -> None:
        """Accepted for compatibility: there is nothing to record."""

    def wait_event(self, event: Event) -> None:
        """Returns immediately: there is nothing to wait for."""


class Event:
    """A stand-in for an event in a stream, which has always completed.

    >>> torch.cpu.Event().query()
    True
    """

    def query(self) -> bool:
        """Returns whether the event has completed: always True."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Accepted for compatibility: there is nothing to record."""

    def synchronize(self) -> None:
        """Returns immediately: there is nothing to wait for."""

    def wait(self, stream: Stream | None = None) -> None:
        """Returns immediately: there is nothing to wait for."""


class StreamContext(AbstractContextManager):
    """A context manager that selects a stream; there is only one.

    >>> with torch.cpu.stream(torch.cpu.Stream()):
    ...     print(torch.ones(1))
    tensor([1.])
    """

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __exit__(self, *exception: Any) -> None:
        return None


_STREAM = Stream()


def is_available() -> bool:
    """Returns whether the CPU is available: always True.

    >>> torch.cpu.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Returns whether the CPU is initialized: always True.

    >>> torch.cpu.is_initialized()
    True
    """
    return True


def device_count() -> int:
    """Returns the number of CPU devices: 1, regardless of the number of cores.

    >>> torch.cpu.device_count()
    1
    """
    return 1


def current_device() -> str:
    """Returns the current device.

    >>> torch.cpu.current_device()
    'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted for compatibility: there is only one CPU device.

    >>> torch.cpu.set_device("cpu")
    """


def synchronize(device: Any = None) -> None:
    """Returns immediately: work is finished when a call returns.

    >>> torch.cpu.synchronize()
    """


def current_stream(device: Any = None) -> Stream:
    """Returns the current stream.

    >>> torch.cpu.current_stream() is torch.cpu.current_stream()
    True
    """
    return _STREAM


def stream(stream: Stream | None) -> StreamContext:
    """Returns a context manager that selects `stream`.

    >>> with torch.cpu.stream(None):
    ...     pass
    """
    return StreamContext(stream)
