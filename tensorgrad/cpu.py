"""`torch.cpu`: what programs written for any device ask of the processor. It has one device and runs in order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


class Stream:
    """Takes the place of a queue of work: the processor's work is done when a call returns.

    >>> import tensorgrad as torch
    >>> torch.cpu.Stream().wait_stream(torch.cpu.current_stream())
    """

    def __init__(self, priority: int = -1):
        pass

    def wait_stream(self, stream: Stream) -> None:
        """Returns at once: there is nothing to wait for."""

    def record_event(self) -> None:
        """Accepted: there is nothing to record."""

    def wait_event(self, event: Event) -> None:
        """Returns at once: there is nothing to wait for."""


class Event:
    """Takes the place of a mark in a queue of work, which has always been passed.

    >>> import tensorgrad as torch
    >>> torch.cpu.Event().query()
    True
    """

    def query(self) -> bool:
        """Whether everything before the mark is done: yes."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Accepted: there is nothing to record."""

    def synchronize(self) -> None:
        """Returns at once: there is nothing to wait for."""

    def wait(self, stream: Stream | None = None) -> None:
        """Returns at once: there is nothing to wait for."""


class StreamContext(AbstractContextManager):
    """Inside, work goes to a stream; there is only one.

    >>> import tensorgrad as torch
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
    """Whether tensors can be put there: yes.

    >>> import tensorgrad as torch
    >>> torch.cpu.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether it is ready: always.

    >>> import tensorgrad as torch
    >>> torch.cpu.is_initialized()
    True
    """
    return True


def device_count() -> int:
    """How many devices "cpu" stands for: one, however many cores it has.

    >>> import tensorgrad as torch
    >>> torch.cpu.device_count()
    1
    """
    return 1


def current_device() -> str:
    """The device in use.

    >>> import tensorgrad as torch
    >>> torch.cpu.current_device()
    'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted: there is no other.

    >>> import tensorgrad as torch
    >>> torch.cpu.set_device("cpu")
    """


def synchronize(device: Any = None) -> None:
    """Returns at once: work is done when a call returns.

    >>> import tensorgrad as torch
    >>> torch.cpu.synchronize()
    """


def current_stream(device: Any = None) -> Stream:
    """The stream that work goes to.

    >>> import tensorgrad as torch
    >>> torch.cpu.current_stream() is torch.cpu.current_stream()
    True
    """
    return _STREAM


def stream(stream: Stream | None) -> StreamContext:
    """A context manager in which work goes to `stream`.

    >>> import tensorgrad as torch
    >>> with torch.cpu.stream(None):
    ...     pass
    """
    return StreamContext(stream)
