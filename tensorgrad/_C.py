"""`torch._C`: those names of PyTorch's compiled core that programs reach for."""

from tensorgrad.devices import device
from tensorgrad.dtypes import dtype
from tensorgrad.kernels.array.linalg import LinAlgError as _LinAlgError
from tensorgrad.ops.slowpath import DisableTorchFunctionSubclass
from tensorgrad.random import Generator, default_generator
from tensorgrad.size import Size

__all__ = ["DisableTorchFunctionSubclass", "Generator", "Size", "_LinAlgError", "default_generator", "device", "dtype"]
