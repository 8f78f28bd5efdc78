"""Registers the CUDA device, with its storage and kernels, when a CUDA tensor is first requested."""

from __future__ import annotations

import os

from tensorgrad.dispatch import generate
from tensorgrad.errors import CudaAbsentError
from tensorgrad.storage.cuda import State, capture, memory
from tensorgrad.storage.stubs import BY_DEVICE, Storage, register
from tensorgrad.system import forks, per_thread

INSTALL = "device 'cuda' needs CuPy, which is not installed: pip install cupy-cuda13x (or cupy-cuda12x)"

_LOADING = forks.lock()


def load() -> type[Storage]:
    """Registers the CUDA storage and returns it.

    Raises: RuntimeError with one line that says what is missing: CuPy, something that CuPy needs, or a GPU.
    """
    if State.forked:
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
    from tensorgrad.kernels.cuda import pointwise, table  # noqa: F401  which enters its kernels
    from tensorgrad.kernels.cuda.runtime import xp
    from tensorgrad.storage.cuda.storage import CUDAStorage as storage

    storage.xp = xp.MODULE
    State.converted = pointwise.convert
    generate.promote = storage.guard(generate.promote)
    generate.to_floating = storage.guard(generate.to_floating)
    per_thread.CARRIED.append((capture.place_of_work, capture.work_at))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)
    return register(storage)  # last: other threads must find it complete


def _import_cupy():
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            raise CudaAbsentError(INSTALL) from None
        raise _broken(error) from error
    except Exception as error:  # it also fails in other ways with a NumPy version that it does not support
        raise _broken(error) from error
    return cupy


def _broken(error: Exception) -> CudaAbsentError:
    """Summarizes CuPy's long message by the error that caused it."""
    cause = error.__cause__ or error
    reason = next((line.strip() for line in str(cause).splitlines() if line.strip(" =")), "no reason is given")
    return CudaAbsentError(f"device 'cuda' needs CuPy, which is installed but cannot be imported: {reason}")


def _count(cupy) -> int:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"device 'cuda' needs an NVIDIA GPU and its driver; CUDA says: {error}") from None
    if not count:
        raise RuntimeError("device 'cuda' needs an NVIDIA GPU; CUDA finds none")
    return count


def _in_child() -> None:
    """CUDA does not survive a fork: the child raises an error when it uses a GPU."""
    State.forked = BY_DEVICE.pop("cuda", None) is not None or State.forked
