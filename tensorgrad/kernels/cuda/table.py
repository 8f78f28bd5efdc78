"""Which ops have a CUDA kernel: op -> "file.function" in this folder; "op.backward" is that of its backward kernel."""

from __future__ import annotations

from tensorgrad.kernels.cuda import host
from tensorgrad.rows.kernel_tables import REGISTRY

# Ops whose kernel is the expression of the same name in expressions.py.
EXPRESSIONS = (
    "neg", "abs", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
    "cos", "tanh", "erf", "sigmoid", "silu", "relu", "gelu", "mish", "log_sigmoid", "hardsigmoid", "hardswish",
    "clamp", "threshold", "leaky_relu", "hardshrink", "softshrink", "softplus", "elu", "add", "sub", "mul", "div",
    "rsub", "rdiv", "maximum", "minimum", "lerp_by_number", "threshold_grad", "leaky_relu_grad", "hardtanh_grad",
    "clamp_grad", "hardsigmoid_grad", "shrink_grad", "eq", "ne", "lt", "le", "gt", "ge", "addcmul", "addcdiv",
    "clamp_between", "lerp", "where", "masked_fill", "floor_divide", "remainder", "copysign", "hypot",
)  # fmt: skip

# Ops whose backward kernel is the expression of that name plus "_grad".
BACKWARD = ("sigmoid", "tanh", "silu", "gelu", "mish", "log_sigmoid", "hardswish", "softplus", "elu")

ROWS = {
    **{name: f"pointwise.{name}" for name in EXPRESSIONS},
    **{f"{name}.backward": f"pointwise.{name}_grad" for name in BACKWARD},
    "hardtanh": "pointwise.clamp", "div_floor": "pointwise.floor_divide", "pow": "pointwise.power",
    "relu.backward": "pointwise.relu_backward",
    "softmax": "softmax.softmax", "log_softmax": "softmax.log_softmax",
    "softmax.backward": "softmax.softmax_grad", "log_softmax.backward": "softmax.log_softmax_grad",
    "sum": "reduce.sum_", "mean": "reduce.mean", "prod": "reduce.prod", "any": "reduce.any_", "all": "reduce.all_",
    "amax": "reduce.amax", "amin": "reduce.amin", "max_all": "reduce.max_all", "min_all": "reduce.min_all",
    "arg_extreme": "reduce.arg_extreme", "extreme_dim": "reduce.extreme_with_index", "var": "reduce.var",
    "std": "reduce.std", "var_mean": "reduce.var_mean", "std_mean": "reduce.std_mean",
    "vector_norm": "reduce.vector_norm", "logsumexp": "reduce.logsumexp",
    "layer_norm": "norm.layer_norm", "layer_norm.backward": "norm.layer_norm_grad", "rms_norm": "norm.rms_norm",
    "rms_norm.backward": "norm.rms_norm_grad",
    "batch_norm": "batch_norm.batch_norm", "batch_norm.backward": "batch_norm.batch_norm_grad",
    "group_norm": "batch_norm.group_norm", "group_norm.backward": "batch_norm.group_norm_grad",
    "cross_entropy": "loss.cross_entropy", "cross_entropy.backward": "loss.cross_entropy_backward",
    "nll": "loss.nll", "nll_grad": "loss.nll_grad",
    "cumsum": "scan.cumsum", "cumsum_reversed": "scan.cumsum_reversed",
    "matmul": "matmul.matmul", "matmul_nt": "matmul.nt", "matmul_tn": "matmul.tn", "mm": "matmul.mm",
    "bmm": "matmul.bmm", "mv": "matmul.mv", "dot": "matmul.dot", "vdot": "matmul.vdot", "addmm": "matmul.addmm",
    "addmv": "matmul.addmv", "baddbmm": "matmul.baddbmm", "addbmm": "matmul.addbmm", "linear": "matmul.linear",
    "linear.backward": "matmul.linear_backward", "column_sum": "matmul.column_sum",
    "conv": "conv.conv", "conv_grad_input": "conv.conv_grad_input", "conv_grad_weight": "conv.conv_grad_weight",
    "conv_transpose": "conv.conv_transpose",
    "max_pool": "pool.max_pool", "max_pool_values": "pool.max_pool_values", "max_pool_grad": "pool.max_pool_grad",
    "adaptive_max_pool": "pool.adaptive_max_pool",
    "avg_pool": "pool.avg_pool", "avg_pool_grad": "pool.avg_pool_grad",
    "adaptive_avg_pool": "pool.adaptive_avg_pool", "adaptive_avg_pool_grad": "pool.adaptive_avg_pool_grad",
    "embedding": "index.embedding", "embedding_grad": "index.embedding_grad", "index_select": "index.index_select",
    "gather": "index.gather", "scatter": "index.scatter", "scatter_add": "index.scatter_add",
    "index_add": "index.index_add", "index": "index.index", "index_grad": "index.index_grad",
    "index_put": "index.index_put",
    "attention": "attention.attention", "attention.backward": "attention.attention_grad",
    "lstm_layer": "rnn.lstm", "lstm_layer.backward": "rnn.lstm_grad", "gru_layer": "rnn.gru",
    "gru_layer.backward": "rnn.gru_grad",
    "bernoulli_sample": "random.bernoulli_each", "bernoulli_over": "random.bernoulli_over",
    "normal_both": "random.normal_both", "normal_mean": "random.normal_mean", "normal_std": "random.normal_std",
    "philox_dropout": "random.dropout", "poisson_sample": "random.poisson", "binomial_sample": "random.binomial",
    "standard_gamma_sample": "random.standard_gamma", "dirichlet_sample": "random.dirichlet",
    **{name: f"host.{name}" for name in host.OPS},
    # Helpers, which belong to no op: samplers, named as in kernels/array/sample.py, and functions of lists of arrays.
    "uniform": "random.uniform", "normal": "random.normal", "log_normal": "random.log_normal",
    "exponential": "random.exponential", "cauchy": "random.cauchy", "geometric": "random.geometric",
    "bernoulli": "random.bernoulli", "random": "random.random", "randint": "random.randint",
    "randperm": "random.randperm", "multinomial": "random.multinomial", "dropout_mask": "random.dropout_mask",
    "dropout_place": "random.dropout_place",
    "sgd_step": "optim.sgd", "adam_step": "optim.adam", "gradient_norm": "optim.norm",
    "clip_gradients": "optim.clip", "unscale_gradients": "optim.unscale", "update_loss_scale": "optim.rescale",
    "move_running": "batch_norm.move_running",
}  # fmt: skip


REGISTRY["cuda", "device"] = {name: f"cuda.{path}" for name, path in ROWS.items()}
