"""Products of integers of 8 bits, for quantized networks.

Sums of products are exact: BLAS computes them in floating point, in a dtype that holds them. The kernels of
compiled/integer_products.py compute with integers.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.array.quantized_tensors import chosen
from tensorgrad.rows.kernel_tables import run_kernel

_EXACT = 2**24 // (255 * 128)  # float32 holds the sums of so many products exactly
_F32, _I32 = np.dtype(np.float32), np.dtype(np.int32)


def exact_kind(terms: int):
    """The floating-point dtype that holds the sums of so many products."""
    return np.float32 if terms < _EXACT else np.float64


def sums(xp, x, weight, zero_point):
    """Σₖ (x[m, k] - zero_point) weight[n, k], in int32."""
    kind = exact_kind(x.shape[1])
    return ((x.astype(kind) - kind(zero_point)) @ weight.astype(kind).T).astype(_I32)


def sums_shape(x, weight, zero_point):
    """The shape of `integer_sums`' result."""
    return (x.shape[0], weight.shape[0]), _I32


def dynamic_linear(xp, x, weight, scales, zero_points, bias, highest):
    """`x @ weightᵀ + bias`, where x is first quantized to integers from 0 to `highest`, with the range that it has."""
    scale, zero_point = map(float, chosen(*((x.min(), x.max()) if x.size else (0, 0)), 0, highest))
    ints = run_kernel("quantized", x, np.array(scale), np.array(int(zero_point)), -1, "quint8").ints
    rows = ints.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if zero_points.any():
        kind = exact_kind(x.shape[-1])
        made = (rows.astype(kind) - kind(zero_point)) @ (weight.astype(kind) - zero_points[:, None].astype(kind)).T
    else:
        made = run_kernel("integer_sums", rows, weight, zero_point)
    made = (made.astype(np.float32) * (np.float32(scale) * scales)).reshape(*x.shape[:-1], len(weight))
    return made if bias is None else made + bias


def dynamic_shape(x, weight, scales, zero_points, bias, highest):
    """The shape of `dynamic_linear`'s result."""
    return (*x.shape[:-1], weight.shape[0]), _F32
