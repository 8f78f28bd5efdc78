"""The ops: how they are declared (op, kinds, callpath, dispatch), and one file per family of them."""

FAMILIES = (
    "create", "pointwise", "compare", "complex", "special", "activation", "reduce", "scan", "sort", "shape", "index",
    "join", "copy", "matmul", "linalg", "conv", "pool", "norm", "softmax", "loss", "attention", "dropout", "sample",
)  # fmt: skip
