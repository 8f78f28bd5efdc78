"""`torch.distributed.tensor`: tensors that are distributed over the ranks of a mesh."""

from __future__ import annotations

from tensorgrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from tensorgrad.distributed.tensor.distribute import (
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from tensorgrad.distributed.tensor.dtensor import DTensor
from tensorgrad.distributed.tensor.ops import run as _run
from tensorgrad.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tensorgrad.system.lazy_modules import later as _later

_later(__name__, ("experimental", "parallel"))

__all__ = [
    "DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "ones", "rand", "randn", "zeros",
]  # fmt: skip
