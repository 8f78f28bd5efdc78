"""Ops that CuPy cannot do, or does in thousands of launches: for tensors on GPUs these run on the CPU.

The arguments are copied to the host, the CPU's kernel runs, and its result is copied back, so each call waits for the
GPU twice. These are the LAPACK decompositions that go column by column, and the solvers that follow them, none of which
suits a GPU at the sizes that programs use.
"""

from __future__ import annotations

from functools import wraps

import numpy as np

from tensorgrad.rows import kernel_tables
from tensorgrad.storage.stubs import BY_DEVICE

OPS = frozenset({
    "lu_factor", "lu_permutation", "lu_row_order", "lu_solve", "solve_matrices", "inverse",  # torch.linalg.lu, …
    "ldl_factor", "ldl_solve", "solve_triangular", "cholesky_inverse", "cholesky_solve", "geqrf",
    "eig", "lobpcg", "histogramdd", "hash_tensor",
})  # fmt: skip


def on_host(kernel, storage):
    """Makes a kernel of NumPy arrays take a device's arrays (`storage`: the device's class)."""
    own = storage.array_type

    def to_host(value):
        if value.__class__ is own:
            return storage.to_host(value)
        return [to_host(v) for v in value] if value.__class__ is list else value

    def first(values):
        for value in values:
            found = first(value) if value.__class__ is list else value if value.__class__ is own else None
            if found is not None:
                return found
        return None

    @wraps(kernel)
    def run(*values, **params):
        device = storage.device_of(first(values))
        result = kernel(*map(to_host, values), **params)
        if result.__class__ is tuple:
            return tuple([storage.from_host(r, device) for r in result])
        return storage.from_host(result, device)

    return run


def __getattr__(name: str):
    """Returns the kernel "host.<op>" of the table: the CPU's."""
    if name not in OPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return on_host(kernel_tables.array_kernel(kernel_tables.OPS[name].kernel, np), BY_DEVICE["cuda"])
