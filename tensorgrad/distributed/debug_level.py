"""How much is checked: at the level DETAIL, all ranks compare each collective before it begins."""

from __future__ import annotations

import os
from enum import Enum

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]


class DebugLevel(Enum):
    """How much is checked and reported.

    >>> import tensorgrad.distributed as dist
    >>> [level.name for level in dist.DebugLevel]
    ['OFF', 'INFO', 'DETAIL']
    """

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """Returns the level that the variable TORCH_DISTRIBUTED_DEBUG names. A group keeps that of its making.

    >>> import tensorgrad.distributed as dist
    >>> dist.get_debug_level() in dist.DebugLevel
    True
    """
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    return DebugLevel[name] if name in DebugLevel.__members__ else DebugLevel.OFF


def set_debug_level(level: DebugLevel) -> None:
    """Sets the level, by setting TORCH_DISTRIBUTED_DEBUG.

    >>> import tensorgrad.distributed as dist
    >>> dist.set_debug_level(dist.get_debug_level())
    """
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = level.name


def set_debug_level_from_env() -> None:
    """Accepted: the level is always that of the environment.

    >>> import tensorgrad.distributed as dist
    >>> dist.set_debug_level_from_env()
    """
