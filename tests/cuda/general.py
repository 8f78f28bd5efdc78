"""A context in which ops on GPUs run on CuPy alone, by `kernels/array/`: what happens where no CUDA kernel fits."""

import contextlib

import tensorgrad
from tensorgrad.ops import dispatch


def _stays(name: str, path: str) -> bool:
    """Random numbers have no other kernel, what runs on the host is no CUDA kernel, and some rows are no ops."""
    return path.startswith(("random.", "host.")) or name.partition(".backward")[0] not in dispatch.OPS


@contextlib.contextmanager
def on_cupy_alone():
    """Leaves the rows of kernels/cuda/table.py aside, but for those that nothing could replace."""
    tensorgrad.cuda.init()
    rows = dispatch.OWN["cuda"]
    dispatch.OWN["cuda"] = {name: path for name, path in rows.items() if _stays(name, path)}
    _forget()
    try:
        yield
    finally:
        dispatch.OWN["cuda"] = rows
        _forget()


def _forget():
    for name in dispatch.OPS:
        dispatch._changed(name)
