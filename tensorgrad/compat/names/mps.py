"""`torch.mps`: Apple GPUs, which are not supported."""

from typing import Any

from tensorgrad.absent_device import functions as _functions

__all__ = [
    "current_allocated_memory", "device_count", "driver_allocated_memory", "empty_cache", "get_rng_state",
    "is_available", "manual_seed", "recommended_max_memory", "seed", "synchronize",
]  # fmt: skip
_made: dict[str, Any] = _functions("mps")
globals().update(_made)
