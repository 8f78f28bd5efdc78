"""`torch.amp`: mixed precision. Matrix products in half precision, everything sensitive to rounding in full."""

from tensorgrad.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from tensorgrad.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
