"""A board: the memory by which a thread of the pool is told what to do, without a lock.

It is a row of 64-bit numbers. Whoever has the thread writes what there is to do and last the task; the thread takes the
task, does it, and writes what became of it. Who takes a task, or takes it back, exchanges it for NOTHING: of two only
one gets it.
"""

from __future__ import annotations

# Where what lies, in numbers from the beginning; the first three in lines of the cache of their own.
TASK, DONE, KERNEL, ARGUMENTS, SIZE = 0, 16, 32, 40, 512

# Tasks; any other is the address of a function that is called with the board's address and finds the rest there.
NOTHING, IN_PYTHON = 0, 1

FINISHED, FAILED = 1, 2  # what became of a task; before that, NOTHING

LATE, WRONG = 1, 2  # what may have happened to a kernel: a thread is not done yet; a range has failed
