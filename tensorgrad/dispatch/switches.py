"""What is switched on that ops ask about: grad mode, observers, autocast, hooks on saved tensors, inference mode.

An op's function tests `SLOW` once; while anything stands in that list, in any thread, calls take the slow path
(`slow_path.py`), which finds out what concerns them. This file imports nothing of tensors and ops, so all can use it.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.system.per_thread import PerThread

SLOW: list[str] = []  # what is on, by name, once for each time that it was switched on

OBSERVERS: list = []  # functions (op, args, result, start, seconds) called after every op


class _Local(PerThread):
    """What is on in this thread only."""

    autocast: Any = None  # the state of the innermost `torch.autocast` (amp/autocast_mode.py)
    saved_hooks: tuple = ()  # (pack, unpack) pairs, the innermost last
    saved_hooks_refused: str | None = None  # why no more may be added (`disable_saved_tensors_hooks`)
    overwritten: Any = None  # the storage that the running in-place op is about to write to
    inside_override = False


LOCAL = _Local()


class _GradMode(PerThread):
    enabled = True  # are ops recorded in this thread?
    inference = False  # are results marked as never usable in autograd?
    view_replay = False  # are all steps to a view repeated, however many they are?


GRAD = _GradMode()


def switch(name: str, on: bool) -> None:
    """Has all calls take the slow path, or takes that back.

    >>> from tensorgrad.dispatch.switches import SLOW, switch
    >>> switch("a test", True); SLOW
    ['a test']
    >>> switch("a test", False); SLOW
    []
    """
    if on:
        SLOW.append(name)
    else:
        SLOW.remove(name)


def observe(observer: Any, name: str) -> None:
    """Calls `observer(op, args, result, start, seconds)` after every op, in all threads."""
    OBSERVERS.append(observer)
    switch(name, True)


def unobserve(observer: Any, name: str) -> None:
    """Ends what `observe` began."""
    OBSERVERS.remove(observer)
    switch(name, False)
