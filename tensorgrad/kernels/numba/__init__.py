"""Kernels that Numba compiles, for large arrays on the CPU: used by themselves when the package numba is installed.

    table.py      which ops have one, and from how many elements on
    runtime.py    gets them ready in the background, the first time that a large array comes by; NumPy serves meanwhile
    compiler.py   the process that compiles them for it
    build.py      how one is compiled to an object, by Numba, with an entry that Python can call
    proof.py      small programs by which each is compared with NumPy's before it is kept
    cache.py      where the objects are kept: keys, checksums, locks, failures, bounds
    native.py     loads objects into this process; no Numba is needed for it
    launch.py     the decorators of kernels, which take their machine code from the cache or have it compiled
    language.py   Numba's names for the process that compiles, and what stands for them in the program
    blas.py       keeps NumPy's own threads from standing in their way
    pool.py       the threads that share the work of one kernel
    waiting.py    how they wait for each other
    functions.py  exp, tanh, erf, ... as polynomials that the compiler can turn into vector instructions
    pointwise.py  elementwise kernels, all from one loop
    rows.py       kernels over the last dimension: softmax, layer norm
    conv.py       convolutions, their gradients and transposes, by tiles (tiles.py) and vector registers (vectors.py)
    pooling.py    poolings and their gradients
    norms.py loss.py embedding.py scan.py reduce.py    what their names say

A kernel is a loop over a range of its work that holds no lock; the pool gives each thread a range. So there is one pool
of ordinary Python threads, whatever else runs in the process, and nothing that a fork could leave locked.

TENSORGRAD_FAST=0 switches all of it off; `python -m tensorgrad.warmup` compiles everything now.
"""
