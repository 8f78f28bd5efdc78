"""Kernels in CUDA C for tensors on NVIDIA GPUs, used where they matter; everything else runs on CuPy.

    table.py     which ops have one
    program.py   assembles a program's source, has CuPy compile it, and finds its functions; lists all programs
    expressions.py, register_rows.py   pointwise ops as expressions; how rows are divided among threads
    libraries.py, calls.py, cublas.py, cudnn.py   NVIDIA's libraries: finding them, calling them, what they compute
    switches.py  precisions and options, behind `torch.backends.cuda` and `torch.backends.cudnn`
    sources/     the CUDA C: prelude.cuh (types, sums over warps and blocks), then one file per family
    <family>.py  the GPU's counterparts of the CPU kernels of that family: checks, shapes, and a launch

A kernel takes the arguments of the op's general kernel (`kernels/array/`), without the array module. It returns
NotImplemented for anything it does not support: then the general one runs on CuPy.

`python -m tensorgrad.kernels.cuda.runtime.program FAMILY [DTYPE]` prints a program as passed to the compiler.
"""
