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
    "numeric", "rnn",
    "questions", "storage_values", "memory", "absent", "callables", "view_copy", "docs",
)  # fmt: skip


def __getattr__(name: str):
    if name in ("aten", "prim", "prims", "torchvision"):
        raise AttributeError(
            f"torch.ops.{name}: PyTorch's registry of compiled operators is not included; call torch.<name>, "
            "torch.nn.functional.<name> or torch.linalg.<name>"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
