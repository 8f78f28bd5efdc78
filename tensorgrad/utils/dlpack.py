"""`torch.utils.dlpack`: shares tensors with other libraries without copying (ops/pytorch/external_memory.py)."""

from tensorgrad.dispatch.guard import guarded as _guarded
from tensorgrad.ops.pytorch.external_memory import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]

globals().update(_guarded({name: globals()[name] for name in __all__}, __name__))
