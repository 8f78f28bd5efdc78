"""`torch.xpu`: Intel's GPUs, which are not used here."""

from tensorgrad.absent_device import functions as _functions

is_available, device_count, manual_seed, seed, empty_cache, synchronize = _functions("xpu").values()
