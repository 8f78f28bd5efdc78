"""The operators of torchvision's compiled part, `torch.ops.torchvision`: rows of `ops/vision/`, by its names.

Torchvision's own compiled file needs PyTorch's C++ core. Derivatives of any order, and shapes on the meta device, are
in the rows: what torchvision registers of its own for these operators is not needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.ops.vision import boxes, deform, regions
from tensorgrad.system.not_included import stand_in
from tensorgrad.tensor import Tensor

_QUANTIZED = "there are no quantized tensors"


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an operator compute in float32 under autocast, as torchvision's does, and return the dtype it was given."""

    @functools.wraps(function)
    def operator(input: Tensor, *given: Any) -> Any:
        if not torch.is_autocast_enabled(input.device.type):
            return function(input, *given)
        given = tuple(_widened(value) for value in given)
        with torch.autocast(input.device.type, enabled=False):
            result = function(_widened(input), *given)
        first, *rest = result if isinstance(result, tuple) else (result,)
        first = first.to(input.dtype) if first.is_floating_point() else first
        return (first, *rest) if rest else first

    return operator


def _widened(value: Any) -> Any:
    narrow = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64
    return value.float() if narrow else value


def _cuda_version() -> int:
    """Returns -1: what torchvision compiled without CUDA answers."""
    return -1


# The gradients by themselves, with torchvision's parameters.


def _roi_align_backward(
    grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int,
    channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    size = (batch_size, channels, height, width)
    return regions.roi_align_backward(
        grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned, size
    )


def _roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    return regions.roi_pool_backward(grad, argmax, rois.select(1, 0), (batch_size, channels, height, width))


def _ps_roi_align_backward(
    grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    size = (batch_size, channels, height, width)
    return regions.position_sensitive_backward(
        grad, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, "samples", size
    )


def _ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, channel_mapping: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Tensor:  # fmt: skip
    size = (batch_size, channels, height, width)
    return regions.position_sensitive_backward(
        grad, rois, spatial_scale, pooled_height, pooled_width, 0, "pixels", size
    )


def _deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        inputs: Any = [tensor.detach().requires_grad_() for tensor in (input, weight, offset, mask, bias)]
        out = deform.deform_conv2d(*inputs, *given)
    return torch.autograd.grad(out, inputs, grad, allow_unused=True, materialize_grads=True)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_cuda_version": _cuda_version,
    "_deform_conv2d_backward": _deform_conv2d_backward,
    "_ps_roi_align_backward": _ps_roi_align_backward,
    "_ps_roi_pool_backward": _ps_roi_pool_backward,
    "_roi_align_backward": _roi_align_backward,
    "_roi_pool_backward": _roi_pool_backward,
    "box_iou_rotated": stand_in("box_iou_rotated", "boxes with an angle have no operator", __name__),
    "deform_conv2d": _in_float32(deform.deform_conv2d),
    "nms": _in_float32(boxes.nms),
    "ps_roi_align": _in_float32(regions.ps_roi_align),
    "ps_roi_pool": _in_float32(regions.ps_roi_pool),
    "qnms": stand_in("qnms", _QUANTIZED, __name__),
    "qroi_align": stand_in("qroi_align", _QUANTIZED, __name__),
    "roi_align": _in_float32(regions.roi_align),
    "roi_pool": _in_float32(regions.roi_pool),
}
