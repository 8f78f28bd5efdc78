"""An older path for `tensorgrad.utils.data.pinning`."""

from tensorgrad.utils.data.pinning import pin_memory

__all__ = ["pin_memory"]
