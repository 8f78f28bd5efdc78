"""`torch.xpu`: Intel GPUs, which are not supported."""

from typing import Any

from tensorgrad.absent_device import functions as _functions

__all__ = [
    "can_device_access_peer", "current_device", "current_stream", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "init", "initial_seed",
    "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "seed", "seed_all", "set_device",
    "set_rng_state", "set_stream", "synchronize",
]  # fmt: skip
_made: dict[str, Any] = _functions("xpu")
globals().update(_made)
