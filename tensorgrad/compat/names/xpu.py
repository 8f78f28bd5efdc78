"""`torch.xpu`: Intel GPUs, which are not supported."""

from tensorgrad.absent_device import functions as _functions

is_available, device_count, manual_seed, seed, empty_cache, synchronize = _functions("xpu").values()
