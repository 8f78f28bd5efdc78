"""Hearing of every call of every module, for summaries, profiles and counters.

While somebody listens, `Module.__call__` is another function; afterwards it is the same as before, so that nobody pays
who does not listen. (Global hooks would make all calls slower from then on.)
"""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module
from tensorgrad.system import forks


class Listener:
    """What can be heard. `enter` comes before a module's `forward` and its hooks, `leave` after them, in its thread;
    after an exception `result` is None."""

    def enter(self, module: Module) -> None:
        """A call of `module` begins."""

    def leave(self, module: Module, result: Any) -> None:
        """It ends, with this result."""


_LISTENERS: list[Listener] = []
_lock = forks.lock()
_plain_call = Module.__call__


def _heard_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    listeners = list(_LISTENERS)
    for listener in listeners:
        listener.enter(self)
    result = None
    try:
        result = _plain_call(self, *args, **kwargs)
    finally:
        for listener in reversed(listeners):
            listener.leave(self, result)
    return result


def listen(listener: Listener) -> None:
    """Calls `listener` from now on."""
    with _lock:
        _LISTENERS.append(listener)
        Module.__call__ = _heard_call


def ignore(listener: Listener) -> None:
    """Calls it no more."""
    with _lock:
        _LISTENERS.remove(listener)
        if not _LISTENERS:
            Module.__call__ = _plain_call
