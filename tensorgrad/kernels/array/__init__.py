"""Kernels written once against the array module, for NumPy and any library with its interface.

A file is loaded when one of its functions is first needed, be it that a row names one.
"""

from tensorgrad.system.lazy_modules import later

later(__name__, (
    "activation", "advanced", "attention", "bag", "bessel", "blocks", "boxes", "conv", "ctc", "depthwise", "dlpack",
    "erf", "fake_quantize", "fft", "fold", "fractional", "gamma", "gamma_gradient", "grid", "grid_in_turn", "index",
    "integer_products", "interpolate", "join", "lanes", "lapack",
    "ldl", "linalg", "lobpcg", "loss", "lu", "matmul", "norm", "norm_of_batch", "numeric", "orthogonal", "permutation",
    "pointwise", "pool", "quantized", "quantized_tensors", "rearrange", "reduce",
    "regions", "rejection", "rnn", "sample", "scan", "scatter", "shape",
    "softmax", "sort", "special",
))  # fmt: skip
