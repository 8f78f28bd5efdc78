"""Kernels that Numba compiles, for large arrays on the CPU: used by themselves when the package numba is installed.

    table.py      which ops have a kernel, and from how many elements on
    <family>.py   the kernels of a family, under the name that it has in `ops/` and in the other backends
    layout.py, broadcast.py, functions.py, ufuncs.py   what many families share: arrays that do not lie in rows,
                  broadcasting, exp and the like as polynomials, NumPy's own functions divided among threads
    simd/         inner loops in vector registers (vectors.py, panels.py), and their operands' layout (tiles.py)
    compiling.py, verify.py   the process that compiles kernels, and compares each with NumPy's by small programs
    runtime/      how kernels are kept, loaded and run; imports nothing above it

In `runtime/`:

    row.py          a row of the table, by which an op finds its kernel
    hooks.py        what the table gives to this folder
    background.py   gets kernels ready, the first time that a large array comes by; NumPy serves meanwhile
    compiler.py     the process that compiles them, seen from the program
    build.py        how one is compiled to an object, by Numba, with an entry that Python can call
    cache.py        where the objects are kept: keys, checksums, locks, failures, bounds
    loading.py      loads kernels from there
    native.py       loads objects into this process; no Numba is needed for it
    internals.py    all that is used of Numba and llvmlite beyond what they document, and the versions it was tried with
    launch.py       the decorators of kernels, which take their machine code from the cache or have it compiled
    language.py     Numba's names for the process that compiles, and what stands for them in the program
    self_test.py    a small kernel on two threads, before the first is used in a process
    thread_pool.py  the threads that share the work of one kernel
    mailbox.py      the memory through which a thread is given work
    spin.py         how threads wait for work and for each other
    blas.py         keeps NumPy's own threads from standing in their way

A kernel is a loop over a range of its work that holds no lock; the pool gives each thread a range. So there is one pool
of ordinary Python threads, whatever else runs in the process, and nothing that a fork could leave locked.

TENSORGRAD_FAST=0 switches all of it off; `python -m tensorgrad.warmup` compiles everything now.
"""
