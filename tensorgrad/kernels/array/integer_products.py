"""Products of integers of 8 bits, for quantized networks.

Sums of products are exact: BLAS computes them in floating point, in a dtype that holds them. The kernels of
compiled/integer_products.py compute with integers.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.rows.kernel_tables import run_kernel
from tensorgrad.storage.scales import chosen_for_one

_EXACT = 2**24 // (255 * 128)  # float32 holds the sums of so many products exactly
_F32, _I32 = np.dtype(np.float32), np.dtype(np.int32)


def exact_kind(terms: int):
    """The floating-point dtype that holds the sums of so many products."""
    return np.float32 if terms < _EXACT else np.float64


def sums(xp, x, weight, zero_point):
    """Σₖ (x[m, k] - zero_point) weight[n, k], in int32."""
    sums_shape(x, weight, zero_point)
    kind = exact_kind(x.shape[1])
    return ((x.astype(kind) - kind(zero_point)) @ weight.astype(kind).T).astype(_I32)


def sums_shape(x, weight, zero_point):
    """The shape of `integer_sums`' result. Raises: RuntimeError for what does not fit."""
    if x.ndim != 2 or x.dtype.kind not in "iu" or x.dtype.itemsize != 1:
        raise RuntimeError(f"integer_sums: expected a matrix of int8 or uint8, got {x.dtype} of shape {tuple(x.shape)}")
    _check("integer_sums", x, weight)
    return (x.shape[0], weight.shape[0]), _I32


def dynamic_linear(xp, x, weight, scales, zero_points, bias, highest):
    """`x @ weightᵀ + bias`, where x is first quantized to integers from 0 to `highest`, with the range that it has."""
    dynamic_shape(x, weight, scales, zero_points, bias, highest)
    lowest, largest = (x.min(), x.max()) if x.size else (0, 0)
    scale, zero_point = chosen_for_one(lowest, largest, 0, highest)
    ints = run_kernel("quantized", x, np.array(scale), np.array(zero_point), -1, "quint8").ints
    rows = ints.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if zero_points.any():
        kind = exact_kind(x.shape[-1])
        made = (rows.astype(kind) - kind(zero_point)) @ (weight.astype(kind) - zero_points[:, None].astype(kind)).T
    else:
        made = run_kernel("integer_sums", rows, weight, zero_point)
    made = (made.astype(np.float32) * (np.float32(scale) * scales)).reshape(*x.shape[:-1], len(weight))
    return made if bias is None else made + bias


def dynamic_shape(x, weight, scales, zero_points, bias, highest):
    """The shape of `dynamic_linear`'s result. Raises: RuntimeError for what does not fit."""
    _check("dynamic_linear", x, weight)
    if x.dtype != _F32:
        raise RuntimeError(f"dynamic_linear: expected an input in float32, got {x.dtype}")
    for name, array, sizes in (("scales", scales, (1, len(weight))), ("zero_points", zero_points, (1, len(weight))),
                               ("a bias", bias, (len(weight),))):  # fmt: skip
        if array is not None and (array.ndim != 1 or len(array) not in sizes):
            raise RuntimeError(
                f"dynamic_linear: expected {name} for {len(weight)} rows of weights, got shape {tuple(array.shape)}"
            )
    return (*x.shape[:-1], weight.shape[0]), _F32


def _check(name, x, weight):
    if weight.ndim != 2 or weight.dtype != np.int8 or not x.ndim or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"{name}: expected an input of as many columns as int8 weights have, got {x.dtype}{list(x.shape)} and "
            f"{weight.dtype}{list(weight.shape)}"
        )
