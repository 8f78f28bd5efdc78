"""`torch.multiprocessing`: Python's `multiprocessing`. Tensors that are pickled are copied, not shared."""

from __future__ import annotations

import multiprocessing as _multiprocessing
from multiprocessing import *

from tensorgrad.multiprocessing.spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes", "ENV_VAR_PARALLEL_START", "ProcessContext", "ProcessExitedException", "ProcessRaisedException",
    "SpawnContext",
]  # fmt: skip


def get_all_sharing_strategies() -> set[str]:
    """Returns PyTorch's names for ways to share memory between processes; they have no effect here.

    >>> sorted(torch.multiprocessing.get_all_sharing_strategies())
    ['file_descriptor', 'file_system']
    """
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """Returns the name of PyTorch's default strategy.

    >>> torch.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for compatibility.

    Raises:
        AssertionError: If the name is unknown.

    >>> torch.multiprocessing.set_sharing_strategy("file_system")
    """
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
