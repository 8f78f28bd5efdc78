"""`torch.jit.frontend`: the errors of sources that are not TorchScript."""

from tensorgrad.jit.scripting.errors import FrontendError, NotSupportedError, UnsupportedNodeError

__all__ = ["FrontendError", "NotSupportedError", "UnsupportedNodeError"]
