"""What operators were in older versions: each of these functions says it by the newest one.

Attributes that became inputs are lists or numbers here, and tensors there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.detection import roi_align
from tensorgrad.onnx.operators.layers import batch_normalization
from tensorgrad.onnx.operators.pointwise import clip, dropout, flatten, hardmax, log_softmax, softmax
from tensorgrad.onnx.operators.reductions import topk
from tensorgrad.onnx.operators.resizing import resize
from tensorgrad.onnx.operators.shapes import pad, scatter_elements, slice_
from tensorgrad.onnx.operators.signals import dft
from tensorgrad.onnx.operators.table import OLDER, OPERATORS


def _rows(function: Callable) -> Callable:
    """Before version 13, softmax was over all dimensions from `axis` on, together."""

    def of_rows(x: Any, axis: int = 1) -> Any:
        return function(flatten(x, axis), -1).reshape(x.shape)

    return of_rows


def _dropout(x: Any, ratio: float = 0.5, count: int = 1) -> Any:
    return dropout(x)


def _dropout_7(x: Any, ratio: float = 0.5, count: int = 1) -> Any:
    return x, torch.ones_like(x)


def _clip(x: Any, min: float = -math.inf, max: float = math.inf) -> Any:
    return clip(x, torch.tensor(min, dtype=x.dtype), torch.tensor(max, dtype=x.dtype))


def _pad(x: Any, pads: Any, mode: str = "constant", value: float = 0.0) -> Any:
    return pad(x, torch.tensor(list(pads)), torch.tensor(value), mode=mode)


def _slice(x: Any, starts: Any, ends: Any, axes: Any = None) -> Any:
    return slice_(x, *(None if v is None else torch.tensor(list(v)) for v in (starts, ends, axes)))


def _topk(x: Any, k: int, axis: int = -1) -> Any:
    return topk(x, torch.tensor(k), axis)


def _batch_normalization(
    x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1,
    count: int = 1,
) -> Any:  # fmt: skip
    if count > 1:
        raise NotImplementedError("onnx: BatchNormalization of a version before 14, in training")
    if not spatial:
        return ((x - mean) / (var + epsilon).sqrt() * scale + b,)
    return batch_normalization(x, scale, b, mean, var, epsilon, momentum)


def _resize(x: Any, scales: Any, mode: str = "nearest") -> Any:
    return resize(x, None, scales, None, mode, "asymmetric", "floor")


def _upsample(x: Any, scales: Any, mode: str = "nearest") -> Any:
    return _resize(x, scales if hasattr(scales, "tolist") else torch.tensor(list(scales)), mode)


def _roi_align(
    x: Any, rois: Any, batch: Any, mode: str = "avg", output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Any:  # fmt: skip
    return roi_align(x, rois, batch, "old", mode, output_height, output_width, sampling_ratio, spatial_scale)


def _dft(x: Any, length: Any = None, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Any:
    return dft(x, length, axis, inverse, onesided)


# Operators that are in no newer version.
OPERATORS["Upsample"], OPERATORS["Scatter"] = _upsample, scatter_elements

OLDER.update(
    {
        "BatchNormalization": [(14, _batch_normalization)],
        "Clip": [(11, _clip)],
        "DFT": [(20, _dft)],
        "Dropout": [(10, _dropout_7), (12, _dropout)],
        "Hardmax": [(13, _rows(hardmax))],
        "LogSoftmax": [(13, _rows(log_softmax))],
        "Pad": [(11, _pad)],
        "Resize": [(11, _resize)],
        "RoiAlign": [(16, _roi_align)],
        "Slice": [(10, _slice)],
        "Softmax": [(13, _rows(softmax))],
        "TopK": [(10, _topk)],
    }
)
