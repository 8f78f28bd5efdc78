"""`torch.cuda.profiler`: the part of a program that NVIDIA's profilers look at."""

from __future__ import annotations

import contextlib

from tensorgrad.cuda.devices import module

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Lets the profiler that the program runs under begin. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.profiler.start()
    """
    module().cuda.profiler.start()


def stop() -> None:
    """Lets the profiler that the program runs under end. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     torch.cuda.profiler.stop()
    """
    module().cuda.profiler.stop()


@contextlib.contextmanager
def profile():
    """A `with` block that the profiler looks at. Raises: RuntimeError without a GPU.

    >>> import tensorgrad as torch
    >>> if torch.cuda.is_available():
    ...     with torch.cuda.profiler.profile():
    ...         x = torch.ones(2, device="cuda")
    """
    start()
    try:
        yield
    finally:
        stop()
