"""An op's composite twin as a kernel: what runs on a device that has no kernel for the op."""

from __future__ import annotations

from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch.op import Op
from tensorgrad.dispatch.signature import LIST, PLAIN_VALUE
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, wrap


def twin_kernel(op: Op, storage=None):
    """A kernel, arrays to arrays, that runs the op's composite twin without recording; None for an op without one."""
    if op.twin is None:
        return None

    def kernel(*values):
        tensors = []
        for p, value in zip(op.params, values, strict=True):
            if p.kind is PLAIN_VALUE or value is None or value.__class__ not in STORAGES:
                tensors.append([wrap(v) for v in value] if p.kind is LIST else value)
            else:
                tensors.append(wrap(value))
        before, GRAD.enabled = GRAD.enabled, False
        try:
            result = op.twin(*tensors)  # type: ignore[misc]
        finally:
            GRAD.enabled = before
        return result._array if isinstance(result, Tensor) else tuple(r._array for r in result)

    kernel.twin = op.twin  # type: ignore[attr-defined]
    return kernel
