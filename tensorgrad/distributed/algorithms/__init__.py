"""`torch.distributed.algorithms`: uneven inputs, communication hooks, averages of models."""

from tensorgrad.distributed.algorithms.join import Join, Joinable, JoinHook
from tensorgrad.system.lazy_modules import later as _later

__all__ = ["Join", "JoinHook", "Joinable"]

_later(__name__, ("_checkpoint", "ddp_comm_hooks", "model_averaging"))
