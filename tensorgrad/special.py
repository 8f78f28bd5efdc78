"""`torch.special`: functions of mathematical physics and statistics, elementwise."""

from tensorgrad.ops.special import SPECIAL

globals().update(SPECIAL)
__all__ = sorted(SPECIAL)
