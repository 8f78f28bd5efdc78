"""The former name of `torch.distributed.tensor`, which programs still import."""

from __future__ import annotations

from tensorgrad.distributed.tensor import *
from tensorgrad.distributed.tensor import DeviceMesh, init_device_mesh
