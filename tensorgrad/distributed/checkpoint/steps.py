"""Steps that all processes take together: if one fails, all get its error."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorgrad.distributed.checkpoint.api import CheckpointException
from tensorgrad.distributed.collectives.objects import broadcast_object_list, gather_object
from tensorgrad.distributed.group import ProcessGroup, default_group, or_default
from tensorgrad.distributed.process_group import is_initialized

__all__ = ["Steps"]


class _Failure(NamedTuple):
    error: BaseException
    trace: traceback.StackSummary


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call, or its failure in a form that can be sent."""
    try:
        return function(*arguments)
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        for frame in trace:
            if hasattr(frame, "_code"):  # Python 3.13: cannot be sent
                frame._code = None
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return _Failure(RuntimeError(f"{type(error).__name__}: {error}"), trace)
        return _Failure(error.with_traceback(None), trace)


class Steps:
    """Runs steps in all processes of a group, or in this one alone."""

    def __init__(self, group: ProcessGroup | None, no_dist: bool) -> None:
        alone = no_dist or not is_initialized()
        self.group = None if alone else (default_group() if group is None else or_default(group))
        self.rank = 0 if self.group is None else self.group.rank()
        self.size = 1 if self.group is None else self.group.size()
        self.is_coordinator = self.rank == 0

    def together(self, name: str, own: Callable[[], Any], joint: Callable[[list[Any]], Any]) -> Any:
        """Runs `own` in all processes and `joint` with all results in one; returns its result in all of them.

        Raises:
            CheckpointException: a process failed.
        """
        mine = _attempt(own)
        everyone: list[Any] = [mine] if self.group is None else [None] * self.size
        if self.group is not None:
            gather_object(mine, everyone if self.is_coordinator else None, group=self.group, group_dst=0)
        answer: list[Any] = [None]
        if self.is_coordinator:
            failures = {rank: tuple(item) for rank, item in enumerate(everyone) if isinstance(item, _Failure)}
            if not failures:
                answer = [_attempt(joint, everyone)]
                failures = {0: tuple(answer[0])} if isinstance(answer[0], _Failure) else {}
            answer = [(failures, None if failures else answer[0])]
        if self.group is not None:
            broadcast_object_list(answer, group=self.group, group_src=0)
        failures, result = answer[0]
        if failures:
            raise CheckpointException(name, failures)
        return result
