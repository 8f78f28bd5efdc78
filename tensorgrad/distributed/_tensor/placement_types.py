"""The former name of `torch.distributed.tensor.placement_types`."""

from __future__ import annotations

from tensorgrad.distributed.tensor._dtensor_spec import *  # noqa: F403
from tensorgrad.distributed.tensor.placement_types import *  # noqa: F403
