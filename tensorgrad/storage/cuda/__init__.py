"""NVIDIA GPUs: memory is CuPy's. Loaded when a CUDA tensor is first asked for, so that `import` costs nothing."""

from __future__ import annotations

import warnings
from typing import Any


class State:
    """What holds for the process: what happens at a copy to the host; whether it was forked off one that had CUDA."""

    sync_mode = 0  # 0: nothing; 1: a warning; 2: an error (torch.cuda.set_sync_debug_mode)
    forbidden: Any = None  # CuPy's block in which it raises, while it is open
    forked = False
    arrived: Any = None  # called when values have come to the host (kernels/cuda/runtime/bounds.py)


def set_sync_mode(mode: int) -> None:
    """Sets what happens where the host waits for the GPU. Where it is an error, CuPy raises it, too, if it can: for
    what `CUDAStorage.to_host` does not see."""
    import cupyx

    if State.forbidden is not None:
        State.forbidden.__exit__(None, None, None)
        State.forbidden = None
    if mode == 2 and hasattr(cupyx, "allow_synchronize"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may go away
            State.forbidden = cupyx.allow_synchronize(False)
            State.forbidden.__enter__()
    State.sync_mode = mode


def synchronizing() -> None:
    """Called where the host waits for the GPU: warns or raises if `torch.cuda.set_sync_debug_mode` says so."""
    if State.sync_mode == 2:
        raise RuntimeError("called a synchronizing CUDA operation")
    if State.sync_mode:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=3)
