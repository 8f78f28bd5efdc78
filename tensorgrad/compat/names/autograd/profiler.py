"""`torch.autograd.profiler`: its names, from the package tensorgrad/profiler."""

from tensorgrad.profiler.legacy import EventList, FunctionEvent, emit_itt, emit_nvtx, profile, record_function

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "profile", "record_function"]
