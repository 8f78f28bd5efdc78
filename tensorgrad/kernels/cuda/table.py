"""Which ops have a CUDA kernel: op -> "file.function" in this folder; "op.backward" is that of its backward kernel."""

from __future__ import annotations

from tensorgrad.ops import dispatch

ROWS = {
    "softmax_": "softmax.softmax", "log_softmax_": "softmax.log_softmax",
    "softmax_grad": "softmax.softmax_grad", "log_softmax_grad": "softmax.log_softmax_grad",
}  # fmt: skip


def install() -> None:
    """Puts the rows in front of the general kernels, for arrays on GPUs."""
    dispatch.OWN["cuda"] = ROWS
