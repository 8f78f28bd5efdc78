"""The threads that share the work of one kernel.

A kernel is called as `kernel(*arguments, first, last)` for ranges of its work, and lets other threads run meanwhile.
Handing a range over takes about ten microseconds, so only work of a certain size is shared.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from collections.abc import Callable
from queue import SimpleQueue

from tensorgrad.settings import get_num_threads

GRAIN = 32768  # elements (of ordinary cost) that are worth a thread


class _Ticket:
    """One range of a kernel's work, done by a worker."""

    __slots__ = ("call", "done", "error")

    def __init__(self, call: tuple):
        self.call, self.error = call, None
        self.done = allocate_lock()
        self.done.acquire()


_tickets: SimpleQueue = SimpleQueue()
_workers: list[threading.Thread] = []


def _work(tickets: SimpleQueue) -> None:
    while True:
        ticket = tickets.get()
        kernel, arguments, first, last = ticket.call
        try:
            kernel(*arguments, first, last)
        except BaseException as error:  # it belongs to whoever waits
            ticket.error = error
        ticket.done.release()
        del ticket, kernel, arguments


def _forget() -> None:
    """In a child after a fork the threads are gone: the next kernel starts others."""
    global _tickets
    _tickets = SimpleQueue()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run(kernel: Callable, length: int, arguments: tuple, elements: int) -> None:
    """Runs `kernel` over 0 ... length, by as many threads as `elements` (of work in all) are worth.

    Raises: what the kernel raises, in whichever thread.
    """
    parts = min(get_num_threads(), elements // GRAIN, length)
    if parts <= 1:
        kernel(*arguments, 0, length)
        return
    while len(_workers) < parts - 1:
        worker = threading.Thread(target=_work, args=(_tickets,), name="tensorgrad kernel", daemon=True)
        _workers.append(worker)
        worker.start()
    step = -(-length // parts)
    tickets = [_Ticket((kernel, arguments, first, min(first + step, length))) for first in range(step, length, step)]
    for ticket in tickets:
        _tickets.put(ticket)
    try:
        kernel(*arguments, 0, step)
    finally:
        for ticket in tickets:
            ticket.done.acquire()
    for ticket in tickets:
        if ticket.error is not None:
            raise ticket.error
