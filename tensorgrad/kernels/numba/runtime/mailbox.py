"""A mailbox: the memory by which a worker is told what to do, without a lock.

It is a row of 64-bit numbers. The thread that starts a kernel publishes a task: it writes what there is to do, and the
task itself last. The worker takes the task, does it, and writes what became of it. To take a task, or steal it back, is
to exchange it for NOTHING in one instruction: of two threads only one gets it.
"""

from __future__ import annotations

import numpy as np

MOST = 256  # threads for a kernel, beside the one that starts it

# Where what lies, in numbers from the beginning. A task, in a line of the processor's cache: itself; the first worker's
# mailbox, where the kernel's arguments lie; the range; the processor of the thread that publishes it.
TASK, LEADER, FIRST, LAST, PUBLISHER = range(5)
CLOCK, MOVED = 8, 10  # the thread's clock, two numbers, and when it last found itself crowded
DONE = 16  # what became of it, in another line
WAITER_CLOCK = 24  # the clock of the thread that waits for that, two numbers
# And what a thread that starts a kernel uses of its first worker's: the compiled function that divides the work, how
# long it waits for workers (nanoseconds), the addresses of all their mailboxes, the kernel's address, the arguments.
DIVIDE, PATIENCE, WORKERS = 32, 33, 34
KERNEL, ARGUMENTS, SIZE = WORKERS + MOST, WORKERS + MOST + 2, 1024

# Tasks; any other is the address of a function that is called with where the arguments lie, and a range.
NOTHING, IN_PYTHON = 0, 1

FINISHED, FAILED = 1, 2  # what became of a task; before that, NOTHING

IDLE, CALLED, CROWDED = 0, 1, 2  # why a thread stops waiting: nothing came; a call in Python; it shares its processor

LATE, WRONG = 1, 2  # what may have happened to a kernel: a thread is not done yet; a range has failed


def allocate(divide: int, patience: int) -> np.ndarray:
    """The mailbox of a worker that has nothing to do; `divide` is the address of what divides work (spin.py)."""
    memory = np.zeros(SIZE + 15, np.int64)
    start = -memory.ctypes.data % 128 // 8  # lines of the cache are 64 bytes, or 128
    mailbox = memory[start : start + SIZE]
    mailbox[WORKERS] = mailbox.ctypes.data
    mailbox[DONE], mailbox[DIVIDE], mailbox[PATIENCE], mailbox[PUBLISHER] = FINISHED, divide, patience, -1
    return mailbox
