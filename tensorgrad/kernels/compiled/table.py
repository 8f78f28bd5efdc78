"""Which ops have a compiled kernel, and from how many elements on it is used.

A compiled kernel takes the arguments of the op's NumPy kernel (without the array module), and returns NotImplemented
for what it does not support: other dtypes than float32, gaps in memory.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tensorgrad.kernels.compiled.runtime import row
from tensorgrad.kernels.compiled.runtime.row import WAITING, Row
from tensorgrad.rows.kernel_tables import COMPILED

# NumPy functions that threads share (ufuncs.py); the arithmetic ones are also compiled, for shapes that broadcast.
ARITHMETIC = ("add", "sub", "mul", "div")
UFUNCS = (
    "neg", "abs", "sqrt", "reciprocal", "log", "log2", "log10", "log1p", "expm1", "exp2", "tanh", "sin", "cos", "pow",
    "square", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
)  # fmt: skip

ROWS = (
    Row("clone_copy", "layout.clone", 4096), Row("reshape", "layout.reshaped", 32768),
    Row("to_copy", "casts.to_copy", 4096),
    *(Row(name, f"ufuncs.{name}", 131072) for name in UFUNCS),
    *(Row(name, f"ufuncs.{name}", 32768) for name in ARITHMETIC),
    Row("where", "broadcast.where", 2048), Row("masked_fill", "broadcast.masked_fill", 2048),
    Row("topk", "sort.topk", 512),
    Row("exp", "pointwise.exp", 8192),
    Row("sigmoid", "pointwise.sigmoid", 512), Row("silu", "pointwise.silu", 64),
    Row("relu", "pointwise.relu", 4096), Row("clamp", "pointwise.clamp", 512), Row("erf", "pointwise.erf", 64),
    Row("gelu", "pointwise.gelu", 64), Row("gelu.backward", "pointwise.gelu_grad", 64),
    Row("silu.backward", "pointwise.silu_grad", 64), Row("sigmoid.backward", "pointwise.sigmoid_grad", 128),
    Row("softmax", "softmax.softmax", 64), Row("log_softmax", "softmax.log_softmax", 64),
    Row("softmax.backward", "softmax.softmax_grad", 4096),
    Row("log_softmax.backward", "softmax.log_softmax_grad", 512),
    Row("layer_norm", "norm_of_rows.layer_norm", 64), Row("layer_norm.backward", "norm_of_rows.layer_norm_grad", 64),
    Row("rms_norm", "norm_of_rows.rms_norm", 64), Row("rms_norm.backward", "norm_of_rows.rms_norm_grad", 64),
    Row("gather", "index.gather", 512), Row("scatter", "index.scatter", 2048),
    Row("scatter_add", "index.scatter_add", 256), Row("index_add", "index.index_add", 2048),
    Row("attention", "attention.attention", 512), Row("attention.backward", "attention.attention_grad", 512),
    Row("conv", "conv.conv", 64), Row("conv_transpose", "conv.conv_transpose", 2048),
    Row("conv_grad_input", "conv.conv_grad_input", 64), Row("conv_grad_weight", "conv.conv_grad_weight", 512),
    Row("linear", "matmul.linear", 1), Row("linear.backward", "matmul.linear_backward", 1),
    Row("int8_linear", "quantized.int8_linear", 1), Row("int4_linear", "quantized.int4_linear", 1),
    Row("int8_weights", "quantized.int8_weights", 4096), Row("int4_weights", "quantized.int4_weights", 2048),
    Row("int8_attention", "attention_int8.attention", 1),
    Row("integer_sums", "integer_products.sums", 1), Row("dynamic_linear", "integer_products.dynamic_linear", 32),
    Row("matmul", "matmul.matmul", 1024), Row("mm", "matmul.mm", 1024), Row("bmm", "matmul.bmm", 2048),
    Row("matmul_nt", "matmul.nt", 2048), Row("matmul_tn", "matmul.tn", 2048),
    Row("addmm", "matmul.addmm", 2048, 1),
    Row("max_pool", "pool.max_pool", 1024), Row("max_pool_values", "pool.max_pool_values", 1024),
    Row("max_pool_grad", "pool.max_pool_grad", 64),
    Row("avg_pool", "pool.avg_pool", 64), Row("avg_pool_grad", "pool.avg_pool_grad", 512),
    Row("adaptive_avg_pool", "pool.adaptive_avg_pool", 8192),
    Row("adaptive_avg_pool_grad", "pool.adaptive_avg_pool_grad", 2048),
    Row("batch_norm", "norm.batch_norm", 64), Row("batch_norm.backward", "norm.batch_norm_grad", 64),
    Row("group_norm", "norm.group_norm", 64), Row("group_norm.backward", "norm.group_norm_grad", 64),
    Row("cross_entropy", "loss.cross_entropy", 1),
    Row("cross_entropy.backward", "loss.cross_entropy_backward", 2048, 1),
    Row("sum", "reduce.sum", 4096), Row("column_sum", "reduce.column_sum", 16384),
    Row("mean", "reduce.mean", 2048), Row("vector_norm", "reduce.vector_norm", 4096),
    Row("amax", "reduce.amax", 1024), Row("amin", "reduce.amin", 1024), Row("max_all", "reduce.amax", 4096),
    Row("min_all", "reduce.amin", 4096), Row("extreme_dim", "reduce.extreme_dim", 4096),
    Row("arg_extreme", "reduce.arg_extreme", 4096),
    Row("prod", "reduce.prod", 2048), Row("var", "reduce.var", 64), Row("std", "reduce.std", 64),
    Row("var_mean", "reduce.var_mean", 64), Row("std_mean", "reduce.std_mean", 64),
    Row("embedding_grad", "embedding.embedding_grad", 256), Row("embedding", "embedding.embedding", 512, 1),
    Row("bag_sum", "embedding.bag_sum", 1024),
    Row("bag_lookup", "embedding.lookup", 256, 1), Row("bag_lookup_grad", "embedding.lookup_grad", 256, 1),
    Row("lstm_layer", "rnn.lstm", 512), Row("lstm_layer.backward", "rnn.lstm_grad", 512, 1),
    Row("gru_layer", "rnn.gru", 512), Row("gru_layer.backward", "rnn.gru_grad", 512, 1),
    Row("rnn_layer", "rnn_few.rnn", 512),
    Row("cumsum", "scan.cumsum", 64), Row("cumsum_reversed", "scan.cumsum_reversed", 64),
    Row("tanh.backward", "pointwise.tanh_grad", 512), Row("relu.backward", "pointwise.relu_grad", 4096),
    # Helpers, which belong to no op: optimizers, samplers and the thread pool look them up by name.
    WAITING,
    Row("half_lookup", "halves.lookup", 1), Row("half_slopes", "halves.slopes", 1),
    Row("half_arithmetic", "halves.arithmetic", 1), Row("half_product", "matmul_halves.product", 1),
    Row("half_attention", "attention_halves.attention", 1),
    *(Row(f"joint_{name}", f"broadcast.{name}", 1) for name in ARITHMETIC),  # of equal shapes, too (capture/links.py)
    Row("batch_norm_relu_pool", "norm_pool.forward", 8192),
    Row("batch_norm_relu_pool_grad", "norm_pool.backward", 8192, 3),
    Row("sgd_step", "optim.sgd", 1), Row("sgd_each", "optim.sgd_each", 1), Row("adam_step", "optim.adam", 1),
    Row("gradient_norm", "optim.squares", 4096), Row("gradient_scale", "optim.scale", 4096),
    Row("bernoulli_mask", "random.mask", 2048), Row("uniform_numbers", "random.uniform", 16384),
    Row("sparse_product", "sparse.product", 4096), Row("sparse_sample", "sparse.sample", 4096),
    Row("sparse_order", "sparse.order", 4096), Row("sparse_argsort", "sparse.argsort", 4096),
    Row("sparse_sums", "sparse.sums", 4096), Row("sparse_add_rows", "sparse.add_rows", 4096),
    Row("outer_products", "matmul.outer", 4096), Row("joined", "join.cat", 65536),
    Row("integer_convolution", "integer_conv.convolution", 1),
    Row("cross_entropy_of_batch", "loss.of_batch", 64),
    Row("cross_entropy_of_batch_backward", "loss.of_batch_backward", 64),
)  # fmt: skip


def _by_elements(kernel: Callable, given: tuple) -> Any:
    from tensorgrad.kernels.compiled import layout

    return layout.elementwise(kernel, given)


def _by_rows(kernel: Callable, given: tuple) -> Any:
    from tensorgrad.kernels.compiled import layout

    return layout.by_rows(kernel, given)


def _of_two_bytes(op: str, kernel: Callable, general: Callable, given: tuple) -> Any:
    from tensorgrad.kernels.compiled import halves

    return halves.attempt(op, kernel, general, given)


# How a family's kernels handle arrays that are not row-major. NumPy runs the families without an entry.
LAYOUTS = {
    "pointwise": _by_elements,
    "softmax": _by_rows, "scan": _by_rows, "pool": _by_rows, "norm": _by_rows, "norm_of_rows": _by_rows,
    "loss": _by_rows,
}  # fmt: skip


def wanted() -> bool:
    """Returns whether compiled kernels are enabled: TENSORGRAD_FAST is not 0.

    They do not support Python without the GIL: threads rely on it for each other's mailboxes (thread_pool.py).
    """
    if os.environ.get("TENSORGRAD_FAST", "1") == "0":
        return False
    if "t" in getattr(sys, "abiflags", ""):
        warnings.warn("tensorgrad: no compiled kernels in a free-threaded Python; NumPy is used instead", stacklevel=3)
        return False
    return True


def install() -> None:
    """Registers these kernels ahead of NumPy's."""
    from tensorgrad.kernels.compiled.runtime import blas

    blas.wait_briefly()
    row.LAYOUTS.update(LAYOUTS)
    row.HALVES[:] = [_of_two_bytes]
    for each in ROWS:
        COMPILED[each.op], each.elements = each, each.elements
