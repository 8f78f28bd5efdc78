"""`torch.fx.passes`: what is computed from a graph. Here: the shapes of its values."""

from tensorgrad.fx.passes import shape_prop

__all__ = ["shape_prop"]
