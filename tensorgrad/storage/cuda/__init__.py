"""NVIDIA GPUs: CuPy arrays as memory. Loaded with the first CUDA tensor, so it does not slow down imports."""

from __future__ import annotations

import warnings
from typing import Any


class State:
    """Process-wide state: how to treat copies to the host, and whether the process was forked after CUDA was used."""

    sync_mode = 0  # 0: nothing; 1: a warning; 2: an error (torch.cuda.set_sync_debug_mode)
    forbidden: Any = None  # the active CuPy context manager that forbids synchronization
    forked = False
    converted: Any = None  # converts an array to another floating-point dtype (kernels/cuda/pointwise.py)
    arrived: Any = None  # called after values were copied to the host (kernels/cuda/runtime/bounds.py)


def set_sync_mode(mode: int) -> None:
    """Sets how to treat synchronization with the GPU.

    If it is an error, CuPy raises it, too, if it can: for synchronization that `CUDAStorage.to_host` does not see.
    """
    import cupyx

    if State.forbidden is not None:
        State.forbidden.__exit__(None, None, None)
        State.forbidden = None
    if mode == 2 and hasattr(cupyx, "allow_synchronize"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns that the function may be removed
            State.forbidden = cupyx.allow_synchronize(False)
            State.forbidden.__enter__()
    State.sync_mode = mode


def synchronizing() -> None:
    """Called when the host waits for the GPU: warns or raises according to `torch.cuda.set_sync_debug_mode`."""
    if State.sync_mode == 2:
        raise RuntimeError("called a synchronizing CUDA operation")
    if State.sync_mode:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=3)
