"""Which ops have a compiled kernel, and from how many elements on it is used.

A compiled kernel takes what the op's NumPy kernel takes (without the array module) and declines by NotImplemented what
it was not made for: other dtypes than float32, gaps in memory.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import update_wrapper
from importlib.util import find_spec
from typing import Any

from tensorgrad.dispatch import kernel_tables
from tensorgrad.settings import _Settings as SETTINGS


class Unsuited(Exception):
    """An array that a compiled kernel was not made for (read-only, with gaps, of another dtype): NumPy's takes over."""


class Row:
    """An op, its compiled kernel as "file.name" in this folder, and the elements of its first array that it is for.

    `sized` is the number of the argument that is measured, where it is not the first. "name.backward" is the kernel of
    an op's `backward_kernel`.
    """

    __slots__ = ("_elements", "asked", "kernel", "op", "ready", "sized")

    def __init__(self, op: str, kernel: str, elements: int, sized: int = 0):
        self.op, self.kernel, self._elements, self.sized = op, kernel, elements, sized
        self.ready: Any = None  # the kernel, once it is compiled
        self.asked = False

    @property
    def elements(self) -> int:
        return self._elements

    @elements.setter
    def elements(self, elements: int) -> None:
        self._elements = elements
        if self.op in kernel_tables.OPS:  # the call path looks there
            kernel_tables.OPS[self.op].few = elements

    def available(self) -> bool:
        """Whether the kernel is compiled; if not, asks for it."""
        if self.ready is None:
            from tensorgrad.kernels.numba.runtime.background import request

            request(self)
        return self.ready is not None

    def over(self, general: Callable) -> Callable:
        """The kernel of an op for large arrays: the compiled one, once there is one, else NumPy's."""
        from tensorgrad.kernels.numba import layout
        from tensorgrad.kernels.numba.runtime.background import request

        again = getattr(layout, LYING.get(self.kernel.rpartition(".")[0], ""), None)
        sized = self.sized
        always = self.op in kernel_tables.OPS  # whoever calls the kernel of an op has looked at the size

        def kernel(*given, **options):
            if (always or given[sized].size >= self._elements) and not SETTINGS.deterministic:
                if self.ready is None:
                    request(self)
                else:
                    try:
                        made = self.ready(*given, **options)
                        if made is NotImplemented and again is not None and not options:
                            made = again(self.ready, given)
                    except Unsuited:
                        made = NotImplemented
                    if made is not NotImplemented:
                        return made
            return general(*given, **options)

        return update_wrapper(kernel, getattr(general, "func", general))


# NumPy's functions that threads share (ufuncs.py); those of arithmetic are compiled too, for shapes that broadcast.
ARITHMETIC = ("add", "sub", "mul", "div")
UFUNCS = (
    "neg", "abs", "sqrt", "reciprocal", "log", "log2", "log10", "log1p", "expm1", "exp2", "tanh", "sin", "cos", "pow",
    "square", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
)  # fmt: skip

WAITING = Row("threads that wait", "runtime.spin.wait", 0)  # what the pool's threads do until there is work
ROWS = (
    WAITING, Row("clone_copy", "layout.clone", 4096),
    *(Row(name, f"ufuncs.{name}", 131072) for name in UFUNCS),
    *(Row(name, f"ufuncs.{name}", 32768) for name in ARITHMETIC),
    Row("where", "broadcast.where", 2048), Row("masked_fill", "broadcast.masked_fill", 2048),
    Row("step of SGD", "optim.sgd", 16384), Row("step of Adam", "optim.adam", 512),
    Row("norm of gradients", "optim.squares", 4096), Row("coins", "dropout.coins", 2048),
    Row("topk_", "sort.topk", 2048),
    Row("exp", "pointwise.exp", 8192),
    Row("sigmoid", "pointwise.sigmoid", 4096), Row("silu", "pointwise.silu", 4096),
    Row("relu", "pointwise.relu", 4096), Row("erf", "pointwise.erf", 4096),
    Row("gelu", "pointwise.gelu", 512), Row("gelu.backward", "pointwise.gelu_grad", 512),
    Row("silu.backward", "pointwise.silu_grad", 4096), Row("sigmoid.backward", "pointwise.sigmoid_grad", 16384),
    Row("softmax_", "softmax.softmax", 1024), Row("log_softmax_", "softmax.log_softmax", 1024),
    Row("softmax_.backward", "softmax.softmax_grad", 4096),
    Row("log_softmax_.backward", "softmax.log_softmax_grad", 4096),
    Row("layer_norm", "softmax.layer_norm", 256), Row("layer_norm.backward", "softmax.layer_norm_grad", 256),
    Row("gather", "index.gather", 2048), Row("scatter", "index.scatter", 2048),
    Row("scatter_add", "index.scatter_add", 2048), Row("index_add", "index.index_add", 2048),
    Row("attention", "attention.attention", 512), Row("attention.backward", "attention.attention_grad", 512),
    Row("conv", "conv.conv", 512), Row("conv_transpose", "conv.conv_transpose", 2048),
    Row("conv_grad_input", "conv.conv_grad_input", 2048), Row("conv_grad_weight", "conv.conv_grad_weight", 32768),
    Row("linear", "matmul.linear", 1024), Row("linear.backward", "matmul.linear_backward", 2048),
    Row("matmul", "matmul.matmul", 2048), Row("mm", "matmul.mm", 2048), Row("bmm", "matmul.bmm", 2048),
    Row("matmul_nt", "matmul.nt", 2048), Row("matmul_tn", "matmul.tn", 2048),
    Row("addmm", "matmul.addmm", 2048, 1),
    Row("max_pool", "pool.max_pool", 1024), Row("max_pool_values", "pool.max_pool_values", 1024),
    Row("max_pool_grad", "pool.max_pool_grad", 2048),
    Row("avg_pool", "pool.avg_pool", 2048), Row("avg_pool_grad", "pool.avg_pool_grad", 2048),
    Row("adaptive_avg_pool", "pool.adaptive_avg_pool", 8192),
    Row("adaptive_avg_pool_grad", "pool.adaptive_avg_pool_grad", 2048),
    Row("batch_norm", "norm.batch_norm", 1024), Row("batch_norm.backward", "norm.batch_norm_grad", 1024),
    Row("group_norm", "norm.group_norm", 1024), Row("group_norm.backward", "norm.group_norm_grad", 1024),
    Row("cross_entropy_", "loss.cross_entropy", 2048),
    Row("cross_entropy_.backward", "loss.cross_entropy_backward", 2048, 1),
    Row("sum", "reduce.sum", 4096), Row("mean", "reduce.mean", 4096), Row("vector_norm_", "reduce.vector_norm", 4096),
    Row("amax", "reduce.amax", 4096), Row("amin", "reduce.amin", 4096), Row("max_all", "reduce.amax", 4096),
    Row("min_all", "reduce.amin", 4096), Row("extreme_dim", "reduce.extreme_dim", 4096),
    Row("arg_extreme", "reduce.arg_extreme", 4096),
    Row("prod_", "reduce.prod", 4096), Row("var_", "reduce.var", 2048), Row("std_", "reduce.std", 2048),
    Row("var_mean_", "reduce.var_mean", 4096), Row("std_mean_", "reduce.std_mean", 4096),
    Row("embedding_grad", "embedding.embedding_grad", 1024), Row("embedding", "embedding.embedding", 512, 1),
    Row("bag_sum", "embedding.bag_sum", 1024),
    Row("bag_lookup", "embedding.lookup", 256, 1), Row("bag_lookup_grad", "embedding.lookup_grad", 256, 1),
    Row("lstm_layer", "rnn.lstm", 512), Row("lstm_layer.backward", "rnn.lstm_grad", 512, 1),
    Row("gru_layer", "rnn.gru", 512), Row("gru_layer.backward", "rnn.gru_grad", 512, 1),
    Row("cumsum", "scan.cumsum", 1024), Row("cumsum_reversed", "scan.cumsum_reversed", 1024),
    Row("tanh.backward", "pointwise.tanh_grad", 16384), Row("relu.backward", "pointwise.relu_grad", 4096),
)  # fmt: skip

# How a file's kernels get arrays that do not lie in rows, by a function of layout.py. Without one NumPy's serve them.
LYING = {
    "pointwise": "elementwise",
    "softmax": "by_rows", "scan": "by_rows", "pool": "by_rows", "norm": "by_rows", "loss": "by_rows",
}  # fmt: skip


def wanted() -> bool:
    """Whether compiled kernels are to be used: numba is installed, and TENSORGRAD_FAST is not 0.

    They are not made for a Python without its lock: threads rely on it for each other's mailboxes (thread_pool.py).
    """
    if os.environ.get("TENSORGRAD_FAST", "1") == "0" or find_spec("numba") is None:
        return False
    if "t" in getattr(sys, "abiflags", ""):
        warnings.warn("tensorgrad: no compiled kernels in a free-threaded Python; NumPy serves", stacklevel=3)
        return False
    return True


def install() -> None:
    """Puts the rows in front of the ops' NumPy kernels."""
    from tensorgrad.kernels.numba.runtime import blas

    blas.wait_briefly()
    for row in ROWS:
        kernel_tables.LARGE[row.op], row.elements = row, row.elements
