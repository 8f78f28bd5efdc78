"""The ops, one file per family. How they are declared and called is in `dispatch/`."""

FAMILIES = (
    "create", "pointwise", "limits", "compare", "complex", "pick", "scan", "reduce", "sort", "shape", "restride",
    "split", "index", "scatter", "join", "rearrange", "copy", "numeric", "properties",
    *("special." + name for name in ("special", "bessel", "orthogonal")),
    *("linalg." + name for name in (
        "matmul", "einsum", "linalg", "cholesky", "matrix_functions", "decompose", "matrix_norm", "norms", "lu", "ldl",
        "householder", "lowrank", "lobpcg", "grouped",
    )),
    *("nn." + name for name in (
        "activation", "embedding", "bag", "embedding_bag", "conv", "pool", "norm", "softmax", "loss", "margin", "ctc",
        "loss_functions", "segment", "attention", "dropout", "interpolate", "grid", "fractional", "weight_norm", "rnn",

        "small_weights", "fake_quantize",
    )),
    *("random." + name for name in ("states", "sample", "in_place", "gamma_sample", "gumbel")),
    *("signal." + name for name in ("fft", "spectrogram", "windows")),
    "sparse_parts",
    *("sparse." + name for name in (
        "composed", "convert", "matmul", "reduce", "resize", "invariants", "construct", "row_pointers", "solve",
    )),
    *("pytorch." + name for name in (
        "removed", "native", "integer_products", "quantized_tensors", "storage_values", "external_memory", "absent",
        "callables", "view_copy", "examples",
    )),
)  # fmt: skip
