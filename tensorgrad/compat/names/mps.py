"""`torch.mps`: Apple GPUs, which are not supported."""

from tensorgrad.absent_device import functions as _functions

_made = _functions("mps")

current_allocated_memory = _made["current_allocated_memory"]
device_count = _made["device_count"]
driver_allocated_memory = _made["driver_allocated_memory"]
empty_cache = _made["empty_cache"]
get_rng_state = _made["get_rng_state"]
is_available = _made["is_available"]
manual_seed = _made["manual_seed"]
recommended_max_memory = _made["recommended_max_memory"]
seed = _made["seed"]
set_rng_state = _made["set_rng_state"]
synchronize = _made["synchronize"]
