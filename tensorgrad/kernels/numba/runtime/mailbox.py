"""A board: the memory by which a thread of the pool is told what to do, without a lock.

It is a row of 64-bit numbers. Whoever has the thread writes what there is to do and last the task; the thread takes the
task, does it, and writes what became of it. Who takes a task, or takes it back, exchanges it for NOTHING: of two only
one gets it.
"""

from __future__ import annotations

import numpy as np

MOST = 256  # threads for a kernel, beside the one that starts it

# Where what lies, in numbers from the beginning. A task, in a line of the processor's cache: the board where the
# kernel's arguments lie, the range, and the processor of the thread that gives it.
TASK, PLACE, FIRST, LAST, GIVER = range(5)
TIME, MOVED = 8, 10  # the thread's clock, two numbers, and when it last found itself crowded
DONE = 16  # what became of it, in another line
WATCH = 24  # the clock of the thread that waits for that, two numbers
# And what is used by who starts a kernel, of the first thread he takes: the compiled function that divides the work,
# its patience (nanoseconds), the addresses of all the threads' boards, the kernel's address, the arguments.
DIVIDE, PATIENCE, TEAM = 32, 33, 34
KERNEL, ARGUMENTS, SIZE = TEAM + MOST, TEAM + MOST + 2, 1024

# Tasks; any other is the address of a function that is called with where the arguments lie, and a range.
NOTHING, IN_PYTHON = 0, 1

FINISHED, FAILED = 1, 2  # what became of a task; before that, NOTHING

IDLE, CALLED, CROWDED = 0, 1, 2  # why a thread stops waiting: nothing came; a call in Python; it shares its processor

LATE, WRONG = 1, 2  # what may have happened to a kernel: a thread is not done yet; a range has failed


def allocate(divide: int, patience: int) -> np.ndarray:
    """The memory of a thread that has nothing to do; `divide` is the address of what divides work (spin.py)."""
    memory = np.zeros(SIZE + 15, np.int64)
    start = -memory.ctypes.data % 128 // 8  # lines of the cache are 64 bytes, or 128
    board = memory[start : start + SIZE]
    board[TEAM] = board.ctypes.data
    board[DONE], board[DIVIDE], board[PATIENCE], board[GIVER] = FINISHED, divide, patience, -1
    return board
