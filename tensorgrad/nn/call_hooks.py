"""Observing every call of every module, for summaries, profiles and counters.

While listeners are registered, `Module.__call__` is replaced by a slower version that notifies them; without listeners
the original is in place, so calls cost nothing extra. (Global module hooks would slow down all later calls.)
"""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module
from tensorgrad.system import forks


class Listener:
    """Base class of listeners. `enter` runs before a module's `forward` and its hooks, `leave` after them, both in the
    thread of the call. `result` is None if the call raised."""

    def enter(self, module: Module) -> None:
        """Called when a call of `module` begins."""

    def leave(self, module: Module, result: Any) -> None:
        """Called when it ends, with its result."""


_LISTENERS: list[Listener] = []
_lock = forks.lock()
_plain_call = Module.__call__


def _observed_call(self: Module, *args: Any, **kwargs: Any) -> Any:
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
    """Registers `listener`."""
    with _lock:
        _LISTENERS.append(listener)
        Module.__call__ = _observed_call


def ignore(listener: Listener) -> None:
    """Unregisters `listener`."""
    with _lock:
        _LISTENERS.remove(listener)
        if not _LISTENERS:
            Module.__call__ = _plain_call
