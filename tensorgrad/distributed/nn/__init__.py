"""`torch.distributed.nn`: collectives through which gradients flow."""

from tensorgrad.distributed.group import group
from tensorgrad.distributed.nn.functional import *
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.system.not_included import stand_in as _stand_in

RemoteModule = _stand_in("RemoteModule", "it needs RPC; use pipelining or tensor parallelism", __name__)
