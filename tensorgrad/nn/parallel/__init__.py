"""`torch.nn.parallel`: training on several devices or in several processes."""

from __future__ import annotations

from typing import Any as _Any

from tensorgrad.nn.parallel.data_parallel import DataParallel, data_parallel, is_parallel
from tensorgrad.system.lazy_modules import whole as _whole

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


def __getattr__(name: str) -> _Any:
    if name == "DistributedDataParallel":  # loads torch.distributed, so only on first use
        from tensorgrad.nn.parallel.distributed import DistributedDataParallel

        return DistributedDataParallel
    from tensorgrad.system.missing_names import no_attribute

    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_whole(__name__)
