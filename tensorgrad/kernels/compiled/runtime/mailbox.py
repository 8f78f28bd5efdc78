"""A mailbox: the memory through which a worker receives tasks without a lock.

It is an array of 64-bit numbers. The thread that starts a kernel publishes a task: it writes the arguments first and
the task itself last. The worker takes the task, runs it, and writes its outcome. Taking a task, or stealing it back,
exchanges it for NOTHING in one instruction, so only one of two threads gets it.
"""

from __future__ import annotations

import numpy as np

MOST = 256  # threads for a kernel, besides the one that starts it
EACH = 3  # sleeping threads that each thread wakes

# Offsets, in numbers from the beginning. A task fills one cache line: the task itself; the mailbox of the first worker,
# which has the kernel's arguments; the range; the processor of the thread that publishes it. Whether the worker sleeps:
# whoever clears that wakes it. In the first worker's, how many workers share the kernel. And whether the worker sleeps
# in machine code, without the GIL.
TASK, LEADER, FIRST, LAST, PUBLISHER, ASLEEP, COUNT, SLEEPS = range(8)
# What a waiting thread knows: its clock (two numbers), when another one last took its processor (in the future: until
# when it yields the processor), and how long it does so (nanoseconds). The worker also remembers when it last found its
# processor shared, and how long it then waits until it moves again.
WORKER = 8
YIELDS_UNTIL, BACKOFF = 2, 3  # after the clock
MIGRATED, MIGRATION = 12, 13
DONE = 16  # the task's outcome, in another cache line
WAITER = 24  # the same of the thread that waits for the outcome
PLACE = 28  # the processor on which the worker began the task
SEMAPHORE = 29  # the system's, for a worker that sleeps in machine code (four numbers)
# A thread that starts a kernel also uses these of its first worker's: the compiled function that divides the work, how
# long that waits for workers (nanoseconds; a worker that SLEEPS waits as long for work), the addresses of all their
# mailboxes, an error, the arguments.
DIVIDE, SPIN_LIMIT, WORKERS = 34, 35, 36
ARGUMENTS, SIZE = WORKERS + MOST + 2, 1024  # a kernel stores a pointer to its error before the arguments

# Tasks; any other value is the address of a function to call with the address of the arguments and a range.
NOTHING, IN_PYTHON = 0, 1

FINISHED, FAILED = 1, 2  # a task's outcome; NOTHING until it is done

IDLE, CALLED, CROWDED = 0, 1, 2  # why a thread stops waiting: no task; a call in Python; its processor is shared

LATE, WRONG = 1, 2  # flags of what may happen to a kernel: a thread is not done yet; a range failed


def allocate(divide: int, spin_limit: int) -> np.ndarray:
    """Allocates the mailbox of an idle worker; `divide` is the address of the function that divides work (spin.py)."""
    memory = np.zeros(SIZE + 15, np.int64)
    start = -memory.ctypes.data % 128 // 8  # cache lines are 64 or 128 bytes
    mailbox = memory[start : start + SIZE]
    mailbox[WORKERS] = mailbox.ctypes.data
    mailbox[DONE], mailbox[DIVIDE], mailbox[SPIN_LIMIT] = FINISHED, divide, spin_limit
    mailbox[PUBLISHER] = mailbox[PLACE] = -1
    return mailbox
