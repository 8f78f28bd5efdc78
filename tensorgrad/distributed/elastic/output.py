"""Where the output of processes goes, as users say it; and the exception by which a signal ends an agent."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import IntFlag

__all__ = ["DefaultLogsSpecs", "LogsSpecs", "SignalException", "Std", "to_map"]


class Std(IntFlag):
    """Output, error output, or both.

    >>> from tensorgrad.distributed.elastic.multiprocessing import Std
    >>> Std.from_str("3") == Std.ALL, Std.from_str("0:1,1:2")[1] == Std.ERR
    (True, True)
    """

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """A number for all local ranks, or `rank:number` for some, separated by commas. Raises: ValueError."""
        try:
            if ":" not in vm:
                return _CHOICES[vm]
            pairs = [part.split(":") for part in vm.split(",")]
            return {int(rank): _CHOICES[value] for rank, value in pairs}
        except (ValueError, KeyError):
            return _refuse(vm)


_CHOICES = {str(int(std)): std for std in (Std.NONE, Std.OUT, Std.ERR, Std.ALL)}


def _refuse(vm: str) -> Std:
    raise ValueError(f"{vm} does not match: <number> or <rank>:<number>,<rank>:<number>,... with numbers 0 to 3")


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """The value of each local rank; `Std.NONE` for those that a dictionary lacks.

    >>> from tensorgrad.distributed.elastic.multiprocessing import Std, to_map
    >>> to_map({1: Std.OUT}, 2) == {0: Std.NONE, 1: Std.OUT}
    True
    """
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass
class LogsSpecs:
    """What becomes of the output of each local rank.

    Args:
        log_dir: the folder for files; None is a temporary one.
        redirects: what goes to files only.
        tee: what goes to files and, with a prefix, to the console.
        local_ranks_filter: the only local ranks that may write to the console; None is all.
    """

    log_dir: str | None = None
    redirects: Std | dict[int, Std] = Std.NONE
    tee: Std | dict[int, Std] = Std.NONE
    local_ranks_filter: set[int] | None = field(default=None)

    @property
    def root_log_dir(self) -> str | None:
        """The folder for files."""
        return self.log_dir


class DefaultLogsSpecs(LogsSpecs):
    """PyTorch's name for what `LogsSpecs` is here."""


class SignalException(Exception):
    """A signal ended the agent.

    >>> import signal
    >>> from tensorgrad.distributed.elastic.multiprocessing import SignalException
    >>> SignalException("stopped", signal.SIGTERM).sigval.name
    'SIGTERM'
    """

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval
