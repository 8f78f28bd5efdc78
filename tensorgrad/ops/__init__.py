"""The ops: how they are declared (op, kinds, callpath, dispatch), and one file per family of them."""

FAMILIES = (
    "create", "pointwise", "limits", "compare", "complex", "special", "activation", "reduce", "scan", "sort", "shape",
    "restride", "split", "index", "scatter", "embedding", "join", "rearrange", "copy", "matmul", "einsum", "linalg",
    "decompose", "conv", "pool", "norm", "softmax", "loss", "margin", "attention", "dropout", "sample", "noise",
)  # fmt: skip
