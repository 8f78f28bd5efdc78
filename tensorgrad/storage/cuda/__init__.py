"""NVIDIA GPUs: memory is CuPy's. Loaded when a CUDA tensor is first asked for, so that `import` costs nothing."""

from __future__ import annotations

import os
import warnings
from typing import Any

from tensorgrad.storage.cuda import memory
from tensorgrad.storage.stubs import BY_DEVICE, Storage, register
from tensorgrad.system import forks

INSTALL = "device 'cuda' needs CuPy, which is not installed: pip install cupy-cuda13x (or cupy-cuda12x)"

_LOADING = forks.lock()


class _State:
    """What holds for the process: what happens at a copy to the host; whether it was forked off one that had CUDA."""

    sync_mode = 0  # 0: nothing; 1: a warning; 2: an error (torch.cuda.set_sync_debug_mode)
    forbidden: Any = None  # CuPy's block in which it raises, while it is open
    forked = False
    arrived: Any = None  # called when values have come to the host (kernels/cuda/runtime/bounds.py)


def load() -> type[Storage]:
    """Registers the CUDA storage and returns it.

    Raises: RuntimeError that says in a line what is missing: the package CuPy, something that CuPy needs, or a GPU.
    """
    if _State.forked:
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
            "'spawn' start method"
        )
    with _LOADING:
        found = BY_DEVICE.get("cuda")
        return _loaded() if found is None else found


def _loaded() -> type[Storage]:
    cupy = _import_cupy()
    memory.install(cupy, _count(cupy))
    from tensorgrad.dispatch import generate
    from tensorgrad.kernels.cuda import table
    from tensorgrad.kernels.cuda.runtime import xp
    from tensorgrad.storage.cuda.storage import CUDAStorage as storage

    storage.xp = xp.MODULE
    table.install()
    generate.promote = storage.guard(generate.promote)
    generate.to_floating = storage.guard(generate.to_floating)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)
    return register(storage)  # last: what other threads find is complete


def _import_cupy():
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            raise RuntimeError(INSTALL) from None
        raise _broken(error) from error
    except Exception as error:  # it also fails in other ways, beside a NumPy that it does not know
        raise _broken(error) from error
    return cupy


def _broken(error: Exception) -> RuntimeError:
    """CuPy's message is a page; what it is about is the error that it was raised from."""
    cause = error.__cause__ or error
    reason = next((line.strip() for line in str(cause).splitlines() if line.strip(" =")), "no reason is given")
    return RuntimeError(f"device 'cuda' needs CuPy, which is installed but cannot be imported: {reason}")


def _count(cupy) -> int:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"device 'cuda' needs an NVIDIA GPU and its driver; CUDA says: {error}") from None
    if not count:
        raise RuntimeError("device 'cuda' needs an NVIDIA GPU; CUDA finds none")
    return count


def _in_child() -> None:
    """CUDA does not survive a fork: the child says so when it is asked for a GPU."""
    _State.forked = BY_DEVICE.pop("cuda", None) is not None or _State.forked


def set_sync_mode(mode: int) -> None:
    """Sets what happens where the host waits for the GPU. Where it is an error, CuPy raises it, too, if it can: for
    what `CUDAStorage.to_host` does not see."""
    import cupyx

    if _State.forbidden is not None:
        _State.forbidden.__exit__(None, None, None)
        _State.forbidden = None
    if mode == 2 and hasattr(cupyx, "allow_synchronize"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may go away
            _State.forbidden = cupyx.allow_synchronize(False)
            _State.forbidden.__enter__()
    _State.sync_mode = mode


def synchronizing() -> None:
    """Called where the host waits for the GPU: warns or raises if `torch.cuda.set_sync_debug_mode` says so."""
    if _State.sync_mode == 2:
        raise RuntimeError("called a synchronizing CUDA operation")
    if _State.sync_mode:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=3)
