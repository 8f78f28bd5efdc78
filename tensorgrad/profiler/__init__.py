"""`torch.profiler`: which ops ran, how often and for how long.

    with torch.profiler.profile(record_shapes=True) as prof:
        with torch.profiler.record_function("training step"):
            ...
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")  # open it in chrome://tracing or https://ui.perfetto.dev

An op goes by the name of its row (`mul`, `matmul`), a step of the backward pass by that of its node (`MulBackward0`).
Times are those of Python and the kernels together, on the CPU's clock. Nothing is measured outside of a profile, and
nothing is slower there.
"""

from tensorgrad.profiler.recorder import record_function
from tensorgrad.profiler.schedules import ProfilerAction, schedule, tensorboard_trace_handler
from tensorgrad.profiler.session import ProfilerActivity, profile, supported_activities

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip


def kineto_available() -> bool:
    """Whether PyTorch's tracing library is there: it is not needed.

    >>> import tensorgrad as torch
    >>> torch.profiler.kineto_available()
    False
    """
    return False
