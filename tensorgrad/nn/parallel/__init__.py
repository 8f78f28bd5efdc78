"""`torch.nn.parallel`: training on several devices or in several processes."""

from __future__ import annotations

import typing as _typing

from tensorgrad.nn.parallel.data_parallel import DataParallel, data_parallel, is_parallel
from tensorgrad.system.names_elsewhere import elsewhere as _elsewhere

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


if _typing.TYPE_CHECKING:
    from tensorgrad.nn.parallel.distributed import DistributedDataParallel

_elsewhere(__name__, {"DistributedDataParallel": "tensorgrad.nn.parallel.distributed"})  # loads torch.distributed
