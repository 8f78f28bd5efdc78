"""`torch.autograd.profiler`: its names, from the room where profiling is (tensorgrad/profiler)."""

import importlib


def __getattr__(name: str):
    legacy = importlib.import_module("tensorgrad.profiler.legacy")
    if name == "__all__" or name in legacy.__all__:
        return getattr(legacy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
