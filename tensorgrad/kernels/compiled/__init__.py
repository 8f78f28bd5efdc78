"""Compiled kernels, for large arrays on the CPU; machine code for several levels of processors, carried by the package.

    table.py      which ops have a kernel, and from how many elements on
    <family>.py   the kernels of a family, named as in `ops/` and in the other backends
    walk.py, layout.py, broadcast.py, lists.py, functions.py, moments.py, ufuncs.py   shared by many families:
                  non-contiguous arrays, broadcasting, lists of arrays in one launch, exp and similar functions as
                  polynomials, means and variances, NumPy's own functions divided among threads
    simd/         inner loops in vector registers (vectors.py, panels.py), and their operands' layout (tiles.py)
    runtime/      how kernels are loaded and run; imports nothing above it

In `runtime/`:

    row.py          a row of the table, through which an op finds its kernel
    target.py       the levels of processors, and which of them this process uses
    library.py      reads kernels from the file of that level: digests, families, addresses
    memory.py       puts machine code into memory, where it can never be written and executed at once
    native.py       what machine code needs from the process, and Python functions made of it
    launch.py       the decorators of kernels, which find their machine code
    language.py     placeholders for what kernels are written with: Numba compiles them
    self_test.py    a small kernel, run before the first kernel is used in a process
    thread_pool.py  the threads that share the work of one kernel
    mailbox.py      the memory through which a thread receives work
    spin.py         how threads wait for work and for each other
    timing.py       how long: the table of all waiting times
    blas.py         keeps NumPy's own threads out of their way

A kernel is a loop over a range of its work that holds no lock; the pool gives each thread a range. So there is one pool
of ordinary Python threads, whatever else runs in the process, and a fork cannot leave anything locked.

In the repository, `make kernels` (tools/kernels) compiles them; TENSORGRAD_FAST=0 disables all of it.
"""
