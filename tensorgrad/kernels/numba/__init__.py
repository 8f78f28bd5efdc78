"""Kernels compiled by Numba, for large arrays on the CPU; enabled automatically if the package numba is installed.

    table.py      which ops have a kernel, and from how many elements on
    <family>.py   the kernels of a family, named as in `ops/` and in the other backends
    walk.py, layout.py, broadcast.py, lists.py, functions.py, ufuncs.py   shared by many families: non-contiguous
                  arrays, broadcasting, lists of arrays in one launch, exp and similar functions as polynomials, NumPy's
                  own functions divided among threads
    simd/         inner loops in vector registers (vectors.py, panels.py), and their operands' layout (tiles.py)
    compiling.py, verify.py   the process that compiles kernels, and compares each with NumPy's in small programs
    runtime/      how kernels are cached, loaded and run; imports nothing above it

In `runtime/`:

    row.py          a row of the table, through which an op finds its kernel
    hooks.py        functions that the table sets in this folder
    background.py   prepares kernels when a large array first occurs, while NumPy runs the ops
    compiler.py     the program's handle to the process that compiles them
    build.py        compiles a kernel to an object with Numba, with an entry that Python can call
    cache.py        where the objects are stored: keys, checksums, locks, failures, limits
    carried.py      folders of kernels that a wheel or an image carries
    loading.py      loads kernels from there
    native.py       makes Python functions of objects, without Numba
    objects.py      loads objects into this process, on Linux with x86-64 without LLVM
    internals.py    every use of undocumented parts of Numba and llvmlite, and the versions they were tested with
    launch.py       the decorators of kernels, which load their machine code from the cache or compile it
    language.py     Numba's names for the process that compiles, and their placeholders in the program
    self_test.py    a small kernel on two threads, run before the first kernel is used in a process
    thread_pool.py  the threads that share the work of one kernel
    mailbox.py      the memory through which a thread receives work
    spin.py         how threads wait for work and for each other
    blas.py         keeps NumPy's own threads out of their way

A kernel is a loop over a range of its work that holds no lock; the pool gives each thread a range. So there is one pool
of ordinary Python threads, whatever else runs in the process, and a fork cannot leave anything locked.

TENSORGRAD_FAST=0 disables all of it; `python -m tensorgrad.warmup` compiles everything ahead of time.
"""
