"""`torch.distributed._composable`: functions that change a module in place: `replicate`, and `fully_shard`."""

from tensorgrad.distributed._composable.replicate import replicate
from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("fsdp",))

__all__ = ["replicate"]
