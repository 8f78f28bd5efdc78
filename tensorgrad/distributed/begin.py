"""How an operation begins and, unless it is asynchronous, ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from tensorgrad.distributed.group import ProcessGroup
from tensorgrad.distributed.work import NO_TIMEOUT, PROGRESS, Work

__all__ = ["begin"]


def begin(
    group: ProcessGroup,
    name: str,
    start: Callable[[Any], list[Any]],
    finish: Callable[[], None],
    tensors: list[Any],
    arrays: list[np.ndarray],
    async_op: bool,
    timeout: timedelta = NO_TIMEOUT,
) -> Work | None:
    """Starts an operation on the group's communicator.

    Args:
        start: makes the requests; `finish` runs once, when all of them are complete.
        tensors: what holds the results; `arrays` is what travels.
        async_op: whether to return without waiting.
        timeout: how long to wait; by default the group's timeout.
    """
    group.check_usable()
    try:
        requests = start(group.communicator)
    except Exception as error:
        group._fail(error, [])
        raise
    work = Work(group, name, requests, finish, tensors, sum(array.nbytes for array in arrays))
    if not async_op:
        work.wait(timeout)
        return None
    if not work.is_completed():
        PROGRESS.watch(work)
    return work
