"""References to values that stay in the process that made them: `RRef`.

The owner counts the references in all processes. A reference that is sent is counted before it leaves; one that ends
is counted off by a thread of its own, as it may end anywhere. The value goes with the last one.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tensorgrad.distributed.rpc.agent import WorkerInfo
from tensorgrad.distributed.rpc.calls import STATE, UNSET, agent, rpc_async, rpc_sync
from tensorgrad.distributed.rpc.functions import async_execution
from tensorgrad.futures import Future
from tensorgrad.system import forks

__all__ = ["PyRRef", "RRef", "remote"]

Key = tuple[int, int]  # the rank of the process that made the reference, and a number
_numbers = itertools.count()


class _Kept:
    """A value that this process keeps for references."""

    def __init__(self) -> None:
        self.value: Future = Future()
        self.count = 0


_lock = forks.lock()
_ended: SimpleQueue[tuple[Any, WorkerInfo, Key]] = SimpleQueue()  # (agent, owner, key) of references that are gone
_counting: list[threading.Thread] = []


def _forget() -> None:
    """In a child: references are its parent's to count off, by a thread that the child does not have."""
    global _ended
    _ended = SimpleQueue()
    _counting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _kept(key: Key, change: int = 0) -> _Kept:
    """The value of a key, one more or fewer of whose references exist."""
    values = agent().values
    with _lock:
        found = values.setdefault(key, _Kept())
        found.count += change
        if found.count <= 0 and found.value.done():
            del values[key]
    return found


def _count(key: Key, change: int) -> None:
    _kept(key, change)


def _compute(key: Key, function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Makes the value of a reference."""
    kept = _kept(key)
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        kept.value.set_exception(error)
    else:
        kept.value.set_result(value)
    _kept(key)  # if no reference is left, it goes


@async_execution
def _value_of(key: Key) -> Future:
    """The value of a reference, when there is one."""
    return _kept(key).value


def _call_method(key: Key, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    return getattr(_kept(key).value.wait(), name)(*args, **kwargs)


def _gone(reference: tuple[Any, WorkerInfo, Key]) -> None:
    _ended.put(reference)


def _count_off() -> None:
    """Tells owners of references that are gone, as long as this process has an agent."""
    while True:
        counted_by, owner, key = _ended.get()
        found = STATE.agent
        if found is None or found is not counted_by:
            continue
        if owner == found.info:
            _kept(key, -1)
        else:
            with suppress(Exception):
                rpc_async(owner, _count, (key, -1))


def _made(owner: WorkerInfo, key: Key) -> RRef:
    """A reference that is counted already."""
    made = object.__new__(RRef)
    made._owner, made._key = owner, key
    if not (_counting and _counting[0].is_alive()):
        _counting[:] = [threading.Thread(target=_count_off, name="ends of references", daemon=True)]
        _counting[0].start()
    weakref.finalize(made, _gone, (agent(), owner, key)).atexit = False
    return made


class RRef:
    """A reference to a value, which stays in the process that made it. References can be sent to other processes.

    Args:
        value: a value of this process.
        type_hint: accepted for compatibility.

    Raises:
        RuntimeError: before `init_rpc`.
    """

    _owner: WorkerInfo
    _key: Key

    def __new__(cls, value: Any = None, type_hint: Any = None) -> RRef:
        me = agent().info
        key = me.id, next(_numbers)
        _kept(key, 1).value.set_result(value)
        return _made(me, key)

    def owner(self) -> WorkerInfo:
        """The process that has the value."""
        return self._owner

    def owner_name(self) -> str:
        """The name of the process that has the value."""
        return self._owner.name

    def is_owner(self) -> bool:
        """Whether this process has the value."""
        return self._owner == agent().info

    def confirmed_by_owner(self) -> bool:
        """Returns True: the owner counts a reference before it exists."""
        return True

    def local_value(self) -> Any:
        """Returns the value. Raises: RuntimeError in another process than the owner; what computing it raised."""
        if not self.is_owner():
            raise RuntimeError(
                f"For {self}, can't call localValue() on user {agent().info}. Call it on owner {self._owner}"
            )
        return _kept(self._key).value.wait()

    def to_here(self, timeout: float = UNSET) -> Any:
        """Returns a copy of the value; in the owner's process the value itself. Raises: what computing it raised."""
        return self.local_value() if self.is_owner() else rpc_sync(self._owner, _value_of, (self._key,), None, timeout)

    def rpc_sync(self, timeout: float = UNSET) -> _Methods:
        """Returns what has the value's methods: the owner runs them, and results are returned."""
        return _Methods(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET) -> _Methods:
        """Returns what has the value's methods: the owner runs them, and futures of results are returned."""
        return _Methods(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET) -> _Methods:
        """Returns what has the value's methods: the owner runs them, and references to results are returned."""
        return _Methods(self, remote, timeout)

    def __reduce__(self) -> tuple:
        if self.is_owner():
            _kept(self._key, 1)
        else:
            rpc_sync(self._owner, _count, (self._key, 1))
        return _made, (self._owner, self._key)

    def __repr__(self) -> str:
        kind = "OwnerRRef" if STATE.agent is not None and self.is_owner() else "UserRRef"
        return f"{kind}(owner={self._owner.name}, key={self._key})"


PyRRef = RRef


class _Methods:
    """The methods of a value that another process has."""

    def __init__(self, reference: RRef, call: Callable, timeout: float) -> None:
        self._reference, self._call, self._timeout = reference, call, timeout

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            found = self._reference
            return self._call(found._owner, _call_method, (found._key, name, args, kwargs), None, self._timeout)

        return method


def remote(
    to: Any, func: Callable, args: Any = None, kwargs: dict[str, Any] | None = None, timeout: float = UNSET
) -> RRef:
    """Has another process run a function and keep the result, and returns a reference to it at once.

    Args:
        to: the process: its name, its rank or its `WorkerInfo`.
        func: a function that the other process can import.
        args, kwargs: its arguments.
        timeout: accepted for compatibility: `to_here` has a limit of its own.

    Raises:
        RuntimeError: before `init_rpc`.
        ValueError: If there is no such process.
    """
    found = agent()
    owner = found.worker(to)
    key = found.info.id, next(_numbers)
    if owner == found.info:
        _kept(key, 1)
    else:
        rpc_sync(owner, _count, (key, 1))
    rpc_async(owner, _compute, (key, func, tuple(args or ()), dict(kwargs or {})), None, 0)
    return _made(owner, key)
