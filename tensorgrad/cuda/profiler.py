"""`torch.cuda.profiler`: selects the part of a program that NVIDIA's profilers record."""

from __future__ import annotations

import contextlib

from tensorgrad.cuda.devices import module

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Starts the recording of the attached profiler.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.profiler.start()
    """
    module().cuda.profiler.start()


def stop() -> None:
    """Stops the recording of the attached profiler.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.profiler.stop()
    """
    module().cuda.profiler.stop()


@contextlib.contextmanager
def profile():
    """A context manager that records its body with the attached profiler.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     with torch.cuda.profiler.profile():
    ...         x = torch.ones(2, device="cuda")
    """
    start()
    try:
        yield
    finally:
        stop()
