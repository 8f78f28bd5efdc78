"""Thread-local state (modes, settings), and a thread that takes it over to continue the work of another.

Python limits the depth of nested calls per thread. If a program may nest without limit, a new thread continues while
the first one waits: to the program it looks as if nothing had happened.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from tensorgrad.system.processes import WEBASSEMBLY

_ALL: list[weakref.ref[PerThread]] = []  # all existing objects: a profiler's end with the profiler
# State that other libraries keep for each thread: functions that read it, and that take it over in another thread.
CARRIED: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []


class PerThread(threading.local):
    """A `threading.local` whose values a substitute thread takes over."""

    def __new__(cls, *args: Any) -> PerThread:
        made = super().__new__(cls, *args)
        _ALL.append(weakref.ref(made, _ALL.remove))
        return made


class Substitute(threading.Thread):
    """A thread that runs a function in place of the thread that started it, which waits."""

    def __init__(self, function: Callable[[], Any]):
        super().__init__(daemon=True)
        self.function, self.state = function, _state()
        self.context = contextvars.copy_context()
        self.carried = [(take_over, read()) for read, take_over in CARRIED]
        starter = threading.current_thread()
        self.line = starter.line if isinstance(starter, Substitute) else []  # all threads waiting for each other now
        self.ended = False  # (after an interrupted `join`, the thread would be considered finished)
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Runs the function with the waiting thread's state, and stores the outcome."""
        try:
            _become(self.state)
            for take_over, value in self.carried:
                take_over(value)
            self.result = self.context.run(self.function)
        except BaseException as error:
            self.error = error
        finally:  # an interrupt may arrive at any moment, even here
            try:
                self.state = _state()
            finally:
                self.ended = True

    def outcome(self) -> Any:
        """Starts the thread and waits for it. Returns or raises what the function did."""
        self.line.append(self)
        self.start()
        while not self.ended:
            try:
                self.join()
                time.sleep(0 if self.ended else 1e-3)
            except BaseException as error:  # Ctrl+C only reaches the main thread: stop the thread that is working
                import ctypes

                worker = ctypes.c_ulong(self.line[-1].ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(worker, ctypes.py_object(type(error)))
        self.line.remove(self)
        _become(self.state)
        if self.error is None:
            return self.result
        try:
            raise self.error
        finally:
            del self.error


def _state() -> list[tuple[PerThread, dict[str, Any]]]:
    """The thread-local state of this thread."""
    return [(local, dict(local.__dict__)) for reference in _ALL.copy() if (local := reference()) is not None]


def _become(state: list[tuple[PerThread, dict[str, Any]]]) -> None:
    for local, values in state:
        local.__dict__.clear()
        local.__dict__.update(values)


def on_fresh_stack(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function in another thread, which takes over this one's modes and settings, and waits for it.

    >>> from tensorgrad.system.per_thread import on_fresh_stack
    >>> with torch.no_grad():
    ...     on_fresh_stack(torch.is_grad_enabled)
    False
    """
    if sys.platform in WEBASSEMBLY:  # which has one thread, and Python's own limit
        return function(*args, **kwargs)
    return Substitute(lambda: function(*args, **kwargs)).outcome()
