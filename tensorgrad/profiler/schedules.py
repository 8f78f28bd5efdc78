"""Determines which steps of a long run are profiled and where the traces are written."""

from __future__ import annotations

import enum
import os
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any


class ProfilerAction(enum.Enum):
    """The action of a profile in a step.

    >>> torch.profiler.schedule(wait=1, warmup=0, active=1)(0) is torch.profiler.ProfilerAction.NONE
    True
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def every_step(_: int) -> ProfilerAction:
    """The schedule of profiles that are given none: all steps are recorded.

    >>> from tensorgrad.profiler.schedules import every_step
    >>> every_step(3).name
    'RECORD'
    """
    return ProfilerAction.RECORD


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Returns a rule for `profile(schedule=...)` that records some steps of each cycle.

    Args:
        wait: the number of steps at the start of each cycle that are not recorded.
        warmup: the number of steps after that whose results are discarded.
        active: the number of steps after that whose results are kept.
        repeat: the number of cycles; 0 means no limit.
        skip_first: the number of steps before the first cycle.
        skip_first_wait: if not 0, the first cycle does not wait.

    Raises:
        AssertionError: If a number is negative, or `active` is 0.

    Warns if there are no warm-up steps.

    >>> rule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [rule(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first, skip_first_wait) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def rule(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step >= repeat * length:
            return ProfilerAction.NONE
        position = step % length
        if position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if position == length - 1 else ProfilerAction.RECORD

    return rule


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable:
    """Returns a function for `profile(on_trace_ready=...)` that writes each trace to its own file in a directory.

    Args:
        dir_name: the directory.
        worker_name: the first part of the file names; by default the host name and the process id.
        use_gzip: whether to compress the files.

    Raises:
        RuntimeError: When a trace is written, if the directory cannot be created.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     handler = torch.profiler.tensorboard_trace_handler(folder, "worker")
    ...     with torch.profiler.profile(on_trace_ready=handler):
    ...         y = torch.ones(2) * 2
    ...     os.listdir(folder)[0].endswith(".pt.trace.json")
    True
    """

    def write(profile: Any) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        profile.export_chrome_trace(os.path.join(dir_name, name))

    return write
