"""Threads of the library's own, which work in the background for as long as the process lives.

`threading.enumerate()` does not list them, as it does not list those that PyTorch starts in C++: test suites that look
for threads which a test has left over, and servers that wait for all threads to end, see only the program's own.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import Any

NAMES: dict[int, str] = {}  # of the threads that are running, by what `threading.get_ident()` returns in them


class Running:
    """A thread; `alive` until its function has returned or raised."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        self.alive = True


def start(name: str, serve: Callable, *arguments: Any) -> Running:
    """Runs `serve(*arguments)` in a thread that does not keep the process alive.

    Raises:
        RuntimeError: The system has no threads left.

    >>> from queue import SimpleQueue
    >>> from tensorgrad.system import threads
    >>> answers = SimpleQueue()
    >>> thread = threads.start("example", answers.put, "done")
    >>> answers.get()
    'done'
    """
    thread, named = Running(), _thread.allocate_lock()
    named.acquire()

    def run() -> None:
        NAMES[_thread.get_ident()] = name
        named.release()
        try:
            serve(*arguments)
        finally:
            NAMES.pop(_thread.get_ident(), None)
            thread.alive = False

    _thread.start_new_thread(run, ())
    named.acquire()
    return thread


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=NAMES.clear)  # only the thread that forked lives on
