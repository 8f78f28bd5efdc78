"""ONNX's `Resize`, as a product with a matrix of weights along each dimension that changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.onnx.operators.table import operator

LARGEST = 2**26  # elements of a matrix of weights


@operator("Resize")
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, antialias: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", axes: Any = None,
) -> Any:  # fmt: skip
    dims = [axis % x.dim() for axis in axes] if axes is not None else list(range(x.dim()))
    given = sizes if sizes is not None and sizes.numel() else scales
    if given is None or given.numel() != len(dims):
        raise ValueError(f"onnx: Resize of {len(dims)} dimensions needs as many scales or sizes")
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    if coordinate_transformation_mode not in _COORDINATES and not crop:
        raise NotImplementedError(f"onnx: Resize with coordinates by {coordinate_transformation_mode!r}")
    if given is scales:
        factors = [float(f) for f in scales.tolist()]
        lengths = [math.floor(x.shape[d] * f) for d, f in zip(dims, factors, strict=True)]
    else:
        lengths, factors = _sizes(x, dims, sizes.tolist(), keep_aspect_ratio_policy)
    for i, (d, length, factor) in enumerate(zip(dims, lengths, factors, strict=True)):
        if factor <= 0 or length < 0 or length * x.shape[d] > LARGEST:
            raise ValueError(f"onnx: Resize of {x.shape[d]} elements to {length}, by {factor}")
        if crop:
            start, end = (float(roi[i + k * len(dims)]) * (x.shape[d] - 1) for k in (0, 1))
            at = start + np.arange(length) * ((end - start) / max(length - 1, 1))
            at = at if length > 1 else np.array([(start + end) / 2] * length)
        elif length == x.shape[d] and factor == 1:
            continue
        else:
            at = _COORDINATES[coordinate_transformation_mode](np.arange(length), x.shape[d], length, factor)
        size = x.shape[d]
        if mode == "nearest":
            nearest = np.clip(_ROUNDINGS[nearest_mode](at), 0, x.shape[d] - 1)
            x = x.index_select(d, torch.from_numpy(nearest.astype(np.int64)))
        else:
            weights = _weights(at, x.shape[d], factor, mode, cubic_coeff_a, bool(exclude_outside), bool(antialias))
            x = (x.movedim(d, -1) @ torch.from_numpy(weights.T.copy()).to(x.dtype)).movedim(-1, d)
        if crop:
            inside = torch.from_numpy((at >= 0) & (at <= size - 1))
            x = torch.where(inside.reshape(-1, *(1,) * (x.dim() - 1 - d)), x, extrapolation_value)
    return x


def _sizes(x: Any, dims: list[int], sizes: list[int], policy: str) -> tuple[list[int], list[float]]:
    """The sizes of the result, and the factors."""
    factors = [size / x.shape[d] for size, d in zip(sizes, dims, strict=True)]
    if policy == "stretch":
        return sizes, factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(x.shape[d] * factor + 0.5) for d in dims], [factor] * len(dims)


def _half_pixel(i: np.ndarray, size: int, length: int, factor: float) -> np.ndarray:
    return (i + 0.5) / factor - 0.5


def _symmetric(i: np.ndarray, size: int, length: int, factor: float) -> np.ndarray:
    return size / 2 * (1 - length / (size * factor)) + _half_pixel(i, size, length, factor)


def _aligned(i: np.ndarray, size: int, length: int, factor: float) -> np.ndarray:
    return i * (size - 1) / (length - 1) if length > 1 else i * 0.0


# Where an element of the result is in the input.
_COORDINATES: dict[str, Callable[[np.ndarray, int, int, float], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda i, size, length, factor: (
        _half_pixel(i, size, length, factor) if length > 1 else i * 0.0
    ),
    "align_corners": _aligned,
    "asymmetric": lambda i, size, length, factor: i / factor,
}
_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _weights(
    at: np.ndarray, size: int, factor: float, mode: str, a: float, exclude: bool, antialias: bool
) -> np.ndarray:
    """The weight of each element of the input in each of the result."""
    if mode not in ("linear", "cubic"):
        raise NotImplementedError(f"onnx: Resize with mode={mode!r}")
    narrow = min(factor, 1.0) if antialias else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    taps = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(at[:, None] - taps) * narrow
    if mode == "linear":
        found = np.maximum(1 - distance, 0)
    else:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * a * distance - 4 * a
        found = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    if exclude:
        found = np.where((taps < 0) | (taps >= size), 0, found)
    if exclude or antialias:
        found = found / found.sum(1, keepdims=True)
    weights = np.zeros((len(at), size))
    np.add.at(weights, (np.arange(len(at))[:, None], np.clip(taps, 0, size - 1).astype(int)), found)
    return weights
