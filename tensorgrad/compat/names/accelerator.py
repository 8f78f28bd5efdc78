"""`torch.accelerator`: the preferred device other than the CPU, if there is one (here CUDA or nothing)."""

from __future__ import annotations

from typing import Any

from tensorgrad import cuda, devices


def is_available() -> bool:
    """Returns whether there is an accelerator.

    >>> device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    """
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> devices.device | None:
    """Returns the accelerator's device (without an index), or None.

    Args:
        check_available: whether to return None if it cannot be used at present.

    >>> device = torch.accelerator.current_accelerator() or torch.device("cpu")
    """
    return devices.device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """Returns the number of accelerators.

    >>> torch.accelerator.device_count() > 0 or not torch.accelerator.is_available()
    True
    """
    return cuda.device_count()


def current_device_index() -> int:
    """Returns the index of the current accelerator.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.accelerator.is_available():
    ...     index = torch.accelerator.current_device_index()
    """
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device) -> None:
    """Makes an accelerator the current one.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.set_device_index(0)
    """
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None) -> None:
    """Waits until the accelerator has finished all queued work.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.synchronize()  # before the clock is read
    """
    cuda.synchronize(device)


def empty_cache() -> None:
    """Returns unused cached memory to the driver.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.empty_cache()
    """
    cuda.empty_cache()


class device_index:
    """A `with` block in which another accelerator is the current one; None changes nothing.

    >>> with torch.accelerator.device_index(0 if torch.accelerator.is_available() else None):
    ...     x = torch.ones(2)
    """

    def __init__(self, device: int | None):
        self.idx, self.prev_idx = device, -1

    def __enter__(self) -> None:
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exception) -> None:
        if self.prev_idx >= 0:
            set_device_index(self.prev_idx)


def current_stream(device=None):
    """Returns the stream that work is queued on.

    Raises:
        RuntimeError: If there is no accelerator.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.current_stream().synchronize()
    """
    return cuda.current_stream(device)


def set_stream(stream) -> None:
    """Makes a stream, and its accelerator, the current one.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.set_stream(torch.accelerator.current_stream())
    """
    cuda.set_stream(stream)


def get_device_capability(device=None) -> dict[str, Any]:
    """Returns the capabilities of an accelerator: the set of supported dtypes.

    Raises:
        RuntimeError: If there is none.

    >>> if torch.accelerator.is_available():
    ...     dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    """
    from tensorgrad import dtypes

    cuda.get_device_capability(device)
    return {"supported_dtypes": set(dtypes.BY_NAME.values())}


def get_memory_info(device=None) -> tuple[int, int]:
    """Returns (free, total) memory in bytes.

    Raises:
        RuntimeError: If there is no accelerator.

    >>> if torch.accelerator.is_available():
    ...     free, total = torch.accelerator.get_memory_info()
    """
    return cuda.mem_get_info(device)


def memory_stats(device=None) -> dict[str, Any]:
    """Returns memory statistics under the names of `torch.cuda.memory_stats`.

    >>> used = torch.accelerator.memory_stats().get("allocated_bytes.all.current", 0)
    """
    return cuda.memory_stats(device)


def memory_reserved(device=None) -> int:
    """Returns the bytes that the process has reserved on the device, used or not.

    >>> megabytes = torch.accelerator.memory_reserved() / 2**20
    """
    return cuda.memory_reserved(device)


def max_memory_reserved(device=None) -> int:
    """Returns the peak of `memory_reserved`, in bytes.

    >>> megabytes = torch.accelerator.max_memory_reserved() / 2**20
    """
    return cuda.max_memory_reserved(device)


def reset_accumulated_memory_stats(device=None) -> None:
    """Resets the statistics that accumulate over time.

    >>> torch.accelerator.reset_accumulated_memory_stats()
    """
    cuda.reset_accumulated_memory_stats(device)


def memory_allocated(device=None) -> int:
    """Returns the bytes that tensors occupy on the device.

    >>> if torch.accelerator.is_available():
    ...     megabytes = torch.accelerator.memory_allocated() / 2**20
    """
    return cuda.memory_allocated(device)


def max_memory_allocated(device=None) -> int:
    """Returns the peak of `memory_allocated`, in bytes.

    >>> if torch.accelerator.is_available():
    ...     megabytes = torch.accelerator.max_memory_allocated() / 2**20
    """
    return cuda.max_memory_allocated(device)


def reset_peak_memory_stats(device=None) -> None:
    """Resets the peak memory statistics.

    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.reset_peak_memory_stats()
    """
    cuda.reset_peak_memory_stats(device)
