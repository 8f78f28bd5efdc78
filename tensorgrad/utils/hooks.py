"""The handle that every ``register_..._hook`` returns, under PyTorch's name for it."""

from tensorgrad.autograd.handles import RemovableHandle

__all__ = ["RemovableHandle"]
