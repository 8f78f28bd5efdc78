"""The handle returned by every `register_..._hook`, under PyTorch's name for it."""

from tensorgrad.autograd.handles import RemovableHandle

__all__ = ["RemovableHandle"]
