"""Kernels in CUDA C, for tensors on NVIDIA GPUs: used where they matter; everything else runs on CuPy.

    table.py     which ops have one
    program.py   puts the text of a program together, has CuPy compile it, and finds its functions; lists all programs
    expressions.py, held.py   pointwise ops as expressions; how rows are shared out to threads
    libraries.py, calls.py, cublas.py, cudnn.py   NVIDIA's libraries: found, called, and what they compute
    switches.py  precisions and choices, behind `torch.backends.cuda` and `torch.backends.cudnn`
    sources/     the texts: prelude.cuh (types, sums over warps and blocks), then one file per family
    <family>.py  what the CPU's kernels of that family are here: checks, shapes, and a launch

A kernel takes what the op's general kernel (`kernels/array/`) takes, without the array module, and declines by
NotImplemented what it was not made for: then the general one runs on CuPy.

`python -m tensorgrad.kernels.cuda.runtime.program FAMILY [DTYPE]` prints a program as the compiler gets it.
"""
