"""How an operation begins and, unless it is asynchronous, ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tensorgrad.distributed.collectives import agreement
from tensorgrad.distributed.errors import DistError
from tensorgrad.distributed.group import ProcessGroup
from tensorgrad.distributed.work import NO_TIMEOUT, PROGRESS, Work

__all__ = ["begin"]


def begin(
    group: ProcessGroup,
    name: str,
    start: Callable[[Any], list[Any]],
    finish: Callable[[], None],
    tensors: list[Any],
    arrays: list[Any],
    async_op: bool,
    timeout: timedelta = NO_TIMEOUT,
    alike: Callable[[], Sequence[Any]] | None = None,
    watched: bool = True,
) -> Work | None:
    """Starts an operation on the group's communicator.

    Args:
        start: makes the requests; `finish` runs once, when all of them are complete.
        tensors: what holds the results; `arrays` is what travels.
        async_op: whether to return without waiting.
        timeout: how long to wait; by default the group's timeout.
        alike: returns tensors and words that must be the same on all ranks, and is called only if they are compared;
            None for a message between two of them.
        watched: whether a thread keeps an asynchronous operation on the host moving. It takes time from a program that
            soon waits.
    """
    group.check_usable()
    number = -1
    if alike is not None:
        number = group.sequence = group.sequence + 1
        if group.checked:
            agreement.check(group, agreement.description(name, number, alike()))
    communicator = group.communicator_of(arrays)
    try:
        requests = start(communicator)
    except DistError as error:
        group._fail(error, [])
        raise
    work = Work(group, name, requests, finish, tensors, sum(array.nbytes for array in arrays), number)
    if not async_op:
        work.wait(timeout)
        return None
    if not work.is_completed() and watched and communicator is group.communicator:
        PROGRESS.watch(work)
    return work
