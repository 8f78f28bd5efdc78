"""The ops: how they are declared (op, kinds, callpath, dispatch), and one file per family of them."""

FAMILIES = (
    "create", "pointwise", "limits", "compare", "complex", "special", "bessel", "orthogonal", "activation", "reduce",
    "scan", "sort", "shape",
    "restride", "split", "index", "scatter", "embedding", "bag", "embedding_bag", "segment", "join", "rearrange",
    "copy", "matmul", "einsum", "linalg",
    "cholesky", "matrix_functions", "decompose", "matrix_norm", "lu", "ldl", "householder", "lowrank", "lobpcg",
    "removed", "conv", "pool", "norm", "softmax", "loss", "margin", "ctc", "loss_functions", "attention", "dropout",
    "sample", "noise",
    "fft", "spectrogram", "windows",
    "interpolate", "grid", "fractional",
    "gamma_sample", "gumbel", "native",
    "numeric", "weight_norm", "rnn",
    "questions", "storage_values", "memory", "absent", "callables", "view_copy", "docs",
)  # fmt: skip
