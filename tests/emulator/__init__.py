"""A GPU for tests: a module named `cupy` whose arrays live in the memory of the CPU.

`install()` puts it into `sys.modules`; `tensorgrad/storage/cuda.py` and `tensorgrad/kernels/cuda/` then run on it
unchanged. It offers only what the real CuPy 14 has (`cupy_names.txt`, written by `names.py`) and refuses what that
refuses: its array is not a NumPy array and does not become one unasked, NumPy arrays are not operands, reductions and
indices give arrays of no dimensions, functions take CuPy's parameters only, ufuncs have CuPy's loops, and an output
that overlaps its input raises, where a GPU's threads would race.

    arrays.py     cupy.ndarray
    ufuncs.py     cupy.add, …: CuPy's loops, computed by NumPy
    functions.py  all other functions: NumPy's, behind CuPy's parameters
    runtime.py    cupy.cuda: devices and memory
    streams.py    cupy.cuda: streams and events; tests may say that a stream is busy
    graphs.py     CUDA graphs: what is recorded while a stream is captured, and what cannot be
    nccl.py       cupy.cuda.nccl: several processes
    native.py     cupy.RawModule: CUDA C, compiled for the CPU with cuda_host.h, and run by cuda_machine.cpp
    library.py    C functions written in Python, and called as C's are
    cublas.py, cudnn.py   the libraries of those names

Not emulated: time (all work is done at once, streams keep no order), the order of sums in CuPy's reductions, and
`ElementwiseKernel`, `ReductionKernel`, `fuse`, cuRAND, sparse matrices.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types

import numpy as np

VERSION = "14.2.0"
NATIVE = ("RawModule", "RawKernel")


def install() -> types.ModuleType:
    """Puts the emulated CuPy into `sys.modules`, if it is not there, and returns it."""
    present = sys.modules.get("cupy")
    if present is not None:
        if getattr(present, "EMULATED", False):
            return present
        raise RuntimeError("the real CuPy is already imported in this process")
    for name, module in _modules().items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    from tests.emulator import library

    library.install()
    return sys.modules["cupy"]


def _modules() -> dict[str, types.ModuleType]:
    from tests.emulator import arrays, functions, runtime, table, ufuncs

    made = runtime.modules()
    for place in ("", "linalg", "fft", "lib", "lib.stride_tricks", "exceptions"):
        made[f"cupy.{place}".rstrip(".")] = types.ModuleType(f"cupy.{place}".rstrip("."))
    top = made["cupy"]
    top.__dict__.update(ufuncs.load())
    top.__dict__.update(
        EMULATED=True, __version__=VERSION, ndarray=arrays.ndarray, ufunc=ufuncs.ufunc, newaxis=None,
        get_default_memory_pool=lambda: runtime.POOL, get_default_pinned_memory_pool=lambda: runtime.PINNED_POOL,
        is_available=lambda: True,
    )  # fmt: skip
    for place in ("", "linalg", "fft", "lib.stride_tricks"):
        module = made[f"cupy.{place}".rstrip(".")]
        module.__getattr__ = _finder(module, place, functions.function)
        module.__dir__ = _names(place, table.rows())
    made["cupy.exceptions"].AxisError = np.exceptions.AxisError
    made["cupyx"] = types.ModuleType("cupyx")
    made["cupyx"].__dict__.update(
        errstate=runtime.errstate, allow_synchronize=runtime.allow_synchronize,
        DeviceSynchronized=runtime.DeviceSynchronized, empty_pinned=runtime.empty_pinned,
        empty_like_pinned=runtime.empty_like_pinned,
    )  # fmt: skip
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
        if any(other.startswith(name + ".") for other in made):
            module.__path__ = []
    return made


def _finder(module, place, function):
    """What a module does when asked for a name that it has not made yet."""

    def find(name):
        if not place and name in NATIVE:
            from tests.emulator import native

            found = getattr(native, name)
        elif name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        else:
            found = function(f"{place}.{name}".lstrip("."))
        setattr(module, name, found)
        return found

    return find


def _names(place, rows):
    prefix = f"{place}." if place else ""
    return lambda: [n.removeprefix(prefix) for n in rows if n.startswith(prefix) and "." not in n.removeprefix(prefix)]
