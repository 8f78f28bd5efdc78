"""A context in which ops on GPUs run on CuPy alone, by `kernels/array/`: what happens where no CUDA kernel fits."""

import contextlib

import tensorgrad
from tensorgrad.rows import kernel_tables


def _stays(path: str) -> bool:
    """Random numbers have no other kernel, and what runs on the host is not a CUDA kernel."""
    return path.startswith(("cuda.random.", "cuda.host."))


@contextlib.contextmanager
def on_cupy_alone():
    """Leaves the rows of kernels/cuda/table.py aside, but for those that nothing could replace."""
    tensorgrad.cuda.init()
    rows = kernel_tables.REGISTRY["cuda", "device"]
    stays = {name: path for name, path in rows.items() if _stays(path) or name not in kernel_tables.OPS}
    kernel_tables.REGISTRY["cuda", "device"] = stays
    kernel_tables.forget()
    try:
        yield
    finally:
        kernel_tables.REGISTRY["cuda", "device"] = rows
        kernel_tables.forget()
