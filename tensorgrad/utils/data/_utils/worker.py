"""An older path for `tensorgrad.utils.data.worker`."""

import os
import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.utils.data.worker import WorkerInfo, _This, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Returns the four numbers that seed NumPy in a worker, as PyTorch's loaders do."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4).tolist()


class _IterableDatasetStopIteration(NamedTuple):
    """A worker's part of an iterable data set is exhausted."""

    worker_id: int


class _ResumeIteration(NamedTuple):
    """A persistent worker begins the next pass."""

    seed: int | None = None


class ManagerWatchdog:
    """Says whether the process that started this one is alive."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()

    def is_alive(self) -> bool:
        """Returns whether it is."""
        return os.getppid() == self.manager_pid


class _Here(ModuleType):
    """This module: `_worker_info` is what `get_worker_info` returns, and torchdata's workers set it."""

    @property
    def _worker_info(self) -> Any:
        return _This.info

    @_worker_info.setter
    def _worker_info(self, info: Any) -> None:
        _This.info = info


sys.modules[__name__].__class__ = _Here
