"""`torch.profiler.profiler`: where PyTorch keeps `profile`, and programs its schedule of every step."""

from tensorgrad.profiler.schedules import ProfilerAction, schedule, tensorboard_trace_handler
from tensorgrad.profiler.schedules import every_step as _default_schedule_fn  # noqa: F401
from tensorgrad.profiler.session import ProfilerActivity, profile, supported_activities

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
