"""`torch.accelerator`: the device beside the CPU that programs should use, if there is one (here: CUDA or nothing)."""

from __future__ import annotations

from tensorgrad import cuda, devices


def is_available() -> bool:
    """Whether there is an accelerator.

    >>> import tensorgrad as torch
    >>> device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    """
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> devices.device | None:
    """The accelerator's device (without an index), or None.

    >>> import tensorgrad as torch
    >>> device = torch.accelerator.current_accelerator() or torch.device("cpu")
    """
    return devices.device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """How many there are.

    >>> import tensorgrad as torch
    >>> torch.accelerator.device_count() > 0 or not torch.accelerator.is_available()
    True
    """
    return cuda.device_count()


def current_device_index() -> int:
    """The number of the current one. Raises: RuntimeError without any.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     index = torch.accelerator.current_device_index()
    """
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device) -> None:
    """Makes one the current one. Raises: RuntimeError without any.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.set_device_index(0)
    """
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None) -> None:
    """Waits until it has done everything it was given. Raises: RuntimeError without any.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.synchronize()  # before the clock is read
    """
    cuda.synchronize(device)


def empty_cache() -> None:
    """Gives memory that no tensor occupies back to the driver.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.empty_cache()
    """
    cuda.empty_cache()


def memory_allocated(device=None) -> int:
    """Bytes that tensors occupy there.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     megabytes = torch.accelerator.memory_allocated() / 2**20
    """
    return cuda.memory_allocated(device)


def max_memory_allocated(device=None) -> int:
    """The most bytes that the process held there.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     megabytes = torch.accelerator.max_memory_allocated() / 2**20
    """
    return cuda.max_memory_allocated(device)


def reset_peak_memory_stats(device=None) -> None:
    """Starts the count of the peak anew.

    >>> import tensorgrad as torch
    >>> if torch.accelerator.is_available():
    ...     torch.accelerator.reset_peak_memory_stats()
    """
    cuda.reset_peak_memory_stats(device)
