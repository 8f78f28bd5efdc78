"""`torch.profiler`: records which ops ran, how often and for how long.

    with torch.profiler.profile(record_shapes=True) as prof:
        with torch.profiler.record_function("training step"):
            ...
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")  # open it in chrome://tracing or https://ui.perfetto.dev

An op is listed under the name of its row (`mul`, `matmul`), and a step of the backward pass under the name of its node
(`MulBackward0`). Times include both Python and the kernels, on the CPU's clock. Outside a profile nothing is measured,
so nothing is slower.
"""

from tensorgrad.profiler import profiler
from tensorgrad.profiler.recorder import record_function
from tensorgrad.profiler.schedules import ProfilerAction, schedule, tensorboard_trace_handler
from tensorgrad.profiler.session import ProfilerActivity, profile, supported_activities

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip


def kineto_available() -> bool:
    """Returns whether a `profile` can record the steps of a schedule and write traces.

    It can: PyTorch's tracing library, after which this is named, is not needed.

    >>> torch.profiler.kineto_available()
    True
    """
    return True
