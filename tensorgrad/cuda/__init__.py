"""`torch.cuda`: NVIDIA GPUs: devices, streams, memory and random number generators.

    devices.py   the GPUs, the current one, and synchronization
    streams.py   streams and events
    memory.py    memory in use, reserved and free; memory_pools.py: pools of a program's own
    random.py    random number generators
    runtime.py   what programs call by the names of CUDA's runtime
    amp.py, comm.py, graphs.py, jiterator.py, nvtx.py, profiler.py, queries.py   PyTorch's smaller modules

Without CuPy or a GPU all queries have an answer (`is_available()` is False, `device_count()` is 0, memory is 0) and
settings are accepted; functions that need a GPU raise an error that says what is missing.
"""

from __future__ import annotations

from tensorgrad.cuda.devices import *
from tensorgrad.cuda.graphs import *
from tensorgrad.cuda.memory import *
from tensorgrad.cuda.memory_pools import *
from tensorgrad.cuda.queries import *
from tensorgrad.cuda.random import *
from tensorgrad.cuda.runtime import *
from tensorgrad.cuda.streams import *
from tensorgrad.system.lazy_modules import whole

# Submodules that are loaded on first use.
_LAZY = ("amp", "comm", "devices", "graphs", "jiterator", "memory", "nvtx", "profiler", "queries", "random", "streams")


def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tensorgrad.cuda.{name}")
    if name == "default_generators":  # the number of GPUs is not known at import
        from tensorgrad.cuda import random

        return random.default_generators()
    if name.endswith("Tensor"):  # torch.cuda.FloatTensor
        from tensorgrad.tensor_types import types

        found = types("cuda").get(name)
        if found is not None:
            return found
    from tensorgrad.system.missing_names import no_attribute

    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "default_generators"})


whole(__name__)
