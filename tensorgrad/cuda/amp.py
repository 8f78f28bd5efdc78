"""`torch.cuda.amp`: the older names of `torch.amp` for GPUs."""

from __future__ import annotations

from tensorgrad import amp
from tensorgrad.amp import custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`torch.amp.autocast("cuda")`.

    >>> with torch.cuda.amp.autocast(enabled=torch.cuda.is_available()):
    ...     x = torch.ones(2, 2) @ torch.ones(2, 2)
    """

    def __init__(self, enabled: bool = True, dtype=None, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`torch.amp.GradScaler("cuda")`.

    >>> scaler = torch.cuda.amp.GradScaler(enabled=torch.cuda.is_available())
    """

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
