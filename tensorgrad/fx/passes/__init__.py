"""`torch.fx.passes`: what is computed from a graph. Here: the shapes of its values, and fake tensors for them."""

from tensorgrad.fx.passes import shape_prop
from tensorgrad.system.lazy_modules import later as _later

__all__ = ["fake_tensor_prop", "shape_prop"]

_later(__name__, ("fake_tensor_prop",))  # fake tensors make all calls look for classes
