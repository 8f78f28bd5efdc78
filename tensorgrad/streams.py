"""`torch.Stream` and `torch.Event` of whatever device there is: CUDA's, or the CPU's, on which nothing is queued."""

from __future__ import annotations

from typing import Any

import tensorgrad
from tensorgrad import devices
from tensorgrad.storage.stubs import storage_class


def _type_of(device: Any) -> str:
    """Returns the type of a device that the user named; None is the GPU, or the CPU without one."""
    if device is None:
        return "cuda" if tensorgrad.cuda.is_available() else "cpu"
    named = devices.device(device)
    storage_class(named)  # raises an error if there is no such device
    return named.type


class Stream:
    """A queue of work on a device. `torch.Stream("cuda")` is a `torch.cuda.Stream`; on the CPU there is only one.

    Args:
        device: Whose stream it is: by default the GPU's, or the CPU's without one.
        options: Those of `torch.cuda.Stream`.

    >>> stream = torch.Stream("cpu")
    >>> stream.query(), stream
    (True, torch.Stream device_type=cpu, device_index=-1, stream_id=0)
    """

    device_index: int = -1

    def __new__(cls, device: Any = None, *args: Any, **options: Any) -> Any:
        if cls is Stream and _type_of(device) == "cuda":
            return tensorgrad.cuda.Stream(device, *args, **options)
        return object.__new__(cls)

    def __init__(self, device: Any = None, *args: Any, **options: Any) -> None:
        pass

    @property
    def device(self) -> devices.device:
        """The device of the stream."""
        return devices.CPU

    @property
    def stream_id(self) -> int:
        """The id of the stream."""
        return 0

    def query(self) -> bool:
        """Returns whether all work is done: on the CPU, always."""
        return True

    def synchronize(self) -> None:
        """Waits until all work is done."""

    def wait_event(self, event: Any) -> None:
        """Makes later work wait for an event."""

    def wait_stream(self, stream: Any) -> None:
        """Raises RuntimeError: the CPU has no events to wait for."""
        raise RuntimeError("cpu backend doesn't support events.")

    def record_event(self, event: Any = None) -> Any:
        """Raises RuntimeError: the CPU has no events."""
        raise RuntimeError("cpu backend doesn't support events.")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(("cpu", -1, 0))

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"


class Event:
    """A mark in a device's queue of work. `torch.Event("cuda")` is a `torch.cuda.Event`; the CPU's cannot be recorded.

    Args:
        device: Whose event it is: by default the GPU's, or the CPU's without one.
        options: `enable_timing`, `blocking`, `interprocess`.

    >>> torch.Event("cpu").query()
    True
    """

    def __new__(cls, device: Any = None, *args: Any, **options: Any) -> Any:
        if cls is Event and _type_of(device) == "cuda":
            return tensorgrad.cuda.Event(**options)
        return object.__new__(cls)

    def __init__(self, device: Any = None, *args: Any, **options: Any) -> None:
        self._timed = bool(options.get("enable_timing"))

    @property
    def device(self) -> devices.device | None:
        """The device of the event."""
        return devices.CPU

    def record(self, stream: Any = None) -> None:
        """Raises RuntimeError: the CPU has no events."""
        raise RuntimeError("cpu backend doesn't support events.")

    def query(self) -> bool:
        """Returns whether all work before the event is done: on the CPU, always."""
        return True

    def synchronize(self) -> None:
        """Waits until all work before the event is done."""

    def wait(self, stream: Any = None) -> None:
        """Makes later work of a stream wait for the event."""

    def elapsed_time(self, other: Any) -> float:
        """Raises an error: a time needs events that were recorded.

        Raises:
            ValueError: If one was not made with `enable_timing=True`.
            RuntimeError: Otherwise.
        """
        if not self._timed or not getattr(other, "_timed", False):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        raise RuntimeError("cpu backend doesn't support events.")

    def __repr__(self) -> str:
        return f"torch.Event device_type=cpu, device_index=-1, event_flag={int(self._timed)}, event_id=0"
