"""Which ops have a compiled kernel, and from how many elements on it is used.

A compiled kernel takes what the op's NumPy kernel takes (without the array module) and declines by NotImplemented what
it was not made for: other dtypes than float32, gaps in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from importlib.util import find_spec
from typing import Any

from tensorgrad.ops import dispatch
from tensorgrad.settings import _Settings as SETTINGS


class Row:
    """An op, its compiled kernel as "file.name" in this folder, and the elements of its first array that it is for.

    `sized` is the number of the array that is measured, where it is not the first. "name.backward" is the kernel of an
    op's `backward_kernel`.
    """

    __slots__ = ("asked", "elements", "kernel", "op", "ready", "sized")

    def __init__(self, op: str, kernel: str, elements: int, sized: int = 0):
        self.op, self.kernel, self.elements, self.sized = op, kernel, elements, sized
        self.ready: Any = None  # the kernel, once it is compiled
        self.asked = False

    def over(self, general: Callable) -> Callable:
        """The kernel of an op: the compiled one for large arrays, once there is one, else NumPy's."""
        from tensorgrad.kernels.numba.runtime import request

        def kernel(x, *rest, **options):
            if x.size >= self.elements and not SETTINGS.deterministic:
                if self.ready is None:
                    request(self)
                else:
                    made = self.ready(x, *rest, **options)
                    if made is not NotImplemented:
                        return made
            return general(x, *rest, **options)

        def by_another(*given, **options):
            if given[sized].size >= self.elements and not SETTINGS.deterministic:
                if self.ready is None:
                    request(self)
                else:
                    made = self.ready(*given, **options)
                    if made is not NotImplemented:
                        return made
            return general(*given, **options)

        sized = self.sized
        return update_wrapper(by_another if sized else kernel, getattr(general, "func", general))


ROWS = (
    Row("exp", "pointwise.exp", 16384),
    Row("sigmoid", "pointwise.sigmoid", 4096), Row("silu", "pointwise.silu", 4096),
    Row("relu", "pointwise.relu", 65536), Row("erf", "pointwise.erf", 4096),
    Row("gelu", "pointwise.gelu", 2048), Row("gelu_grad", "pointwise.gelu_grad", 2048),
    Row("silu_grad", "pointwise.silu_grad", 4096), Row("sigmoid_grad", "pointwise.sigmoid_grad", 16384),
    Row("tanh_grad", "pointwise.tanh_grad", 16384),
    Row("softmax_", "rows.softmax", 2048), Row("log_softmax_", "rows.log_softmax", 2048),
    Row("softmax_grad", "rows.softmax_grad", 4096), Row("log_softmax_grad", "rows.log_softmax_grad", 4096),
    Row("layer_norm", "rows.layer_norm", 2048), Row("layer_norm_grad", "rows.layer_norm_grad", 2048),
    Row("conv", "conv.conv", 2048), Row("conv_transpose", "conv.conv_transpose", 2048),
    Row("conv_grad_input", "conv.conv_grad_input", 2048), Row("conv_grad_weight", "conv.conv_grad_weight", 32768),
    Row("max_pool", "pooling.max_pool", 2048), Row("max_pool_grad", "pooling.max_pool_grad", 2048),
    Row("avg_pool", "pooling.avg_pool", 2048), Row("avg_pool_grad", "pooling.avg_pool_grad", 2048),
    Row("adaptive_avg_pool", "pooling.adaptive_avg_pool", 8192),
    Row("adaptive_avg_pool_grad", "pooling.adaptive_avg_pool_grad", 2048),
    Row("batch_norm", "norms.batch_norm", 1024), Row("batch_norm_grad", "norms.batch_norm_grad", 1024),
    Row("group_norm", "norms.group_norm", 1024), Row("group_norm_grad", "norms.group_norm_grad", 1024),
    Row("cross_entropy_", "loss.cross_entropy", 2048), Row("cross_entropy_grad", "loss.cross_entropy_grad", 2048, 1),
    Row("cross_entropy_.backward", "loss.cross_entropy_backward", 2048, 1),
    Row("prod_", "reduce.prod", 4096), Row("embedding_grad", "embedding.embedding_grad", 1024),
    Row("bag_sum", "embedding.bag_sum", 1024),
    Row("bag_lookup", "embedding.lookup", 256, 1), Row("bag_lookup_grad", "embedding.lookup_grad", 256, 1),
    Row("lstm_layer", "rnn.lstm", 2048), Row("lstm_layer_grad", "rnn.lstm_grad", 2048),
    Row("cumsum", "scan.cumsum", 1024), Row("cumsum_reversed", "scan.cumsum_reversed", 1024),
    Row("tanh.backward", "pointwise.tanh_grad", 16384), Row("relu.backward", "pointwise.relu_grad", 65536),
)  # fmt: skip


def wanted() -> bool:
    """Whether compiled kernels are to be used: numba is installed, and TENSORGRAD_FAST is not 0."""
    return os.environ.get("TENSORGRAD_FAST", "1") != "0" and find_spec("numba") is not None


def install() -> None:
    """Puts the rows in front of the ops' NumPy kernels."""
    for row in ROWS:
        dispatch.LARGE[row.op] = row.over
