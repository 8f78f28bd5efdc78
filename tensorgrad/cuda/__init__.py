"""`torch.cuda`: questions about NVIDIA GPUs, and their queues, memory and random numbers.

    devices.py   which GPUs there are, the current one, what waits for it
    streams.py   queues of work, and marks in them
    memory.py    what is in use, reserved and left
    random.py    random numbers
    amp.py, comm.py, graphs.py, jiterator.py, nvtx.py, profiler.py, queries.py   PyTorch's smaller rooms

Without CuPy or a GPU all questions have answers (`is_available()` is False, `device_count()` is 0, memory is 0) and
settings are accepted; what needs a GPU says what is missing.
"""

from __future__ import annotations

from tensorgrad.cuda.devices import *
from tensorgrad.cuda.graphs import *
from tensorgrad.cuda.memory import *
from tensorgrad.cuda.queries import *
from tensorgrad.cuda.random import *
from tensorgrad.cuda.streams import *
from tensorgrad.system.lazy_modules import whole

# Modules that are loaded when they are first used: rooms of their own.
_LAZY = ("amp", "comm", "devices", "graphs", "jiterator", "memory", "nvtx", "profiler", "queries", "random", "streams")


def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tensorgrad.cuda.{name}")
    if name == "default_generators":  # as many as there are GPUs, which is not known at import
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
