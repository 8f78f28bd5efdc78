"""Boxes and regions of images, samples at places that are computed."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.layers import apart
from tensorgrad.onnx.operators.table import bounded, operator
from tensorgrad.ops.vision import regions
from tensorgrad.ops.vision.boxes import nms
from tensorgrad.ops.vision.deform import deform_conv2d


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None, center_point_box: int = 0
) -> Any:
    limit = 0 if most is None else int(most)
    threshold = 0.0 if overlap is None else float(overlap)
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a.flip(-1) - b.flip(-1) / 2, a.flip(-1) + b.flip(-1) / 2) if center_point_box else (a, b)
    corners = torch.cat([torch.minimum(low, high), torch.maximum(low, high)], -1)
    found = []
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            given = scores[i, c]
            able = torch.arange(given.numel()) if least is None else (given > least.reshape(())).nonzero()[:, 0]
            kept = able[nms(corners[i, able], given[able], threshold)[:limit]]
            found.append(torch.stack([torch.full_like(kept, i), torch.full_like(kept, c), kept], 1))
    return torch.cat(found) if found else torch.zeros(0, 3, dtype=torch.int64)


def _corners(at: Any, size: int) -> tuple[Any, Any, Any]:
    """The two elements next to a place, and the share of the second; outside of the image, those at its edge."""
    low = at.clamp(0, size - 1).floor()
    share = at.clamp(0, size - 1) - low
    return low.long(), (low + 1).clamp(max=size - 1).long(), share


@operator("RoiAlign")
def roi_align(
    x: Any, rois: Any, batch: Any, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Any:  # fmt: skip
    half = coordinate_transformation_mode == "half_pixel"
    bounded([rois.shape[0], x.shape[1], output_height, output_width])
    if mode == "avg":
        boxes = torch.cat([batch[:, None].to(rois.dtype), rois], 1)
        return regions.roi_align(x, boxes, spatial_scale, output_height, output_width, sampling_ratio, half)
    made = []
    for roi, image in zip(rois * spatial_scale - (0.5 if half else 0.0), batch.tolist(), strict=True):
        axes = []
        for start, end, size, count in (
            (roi[1], roi[3], x.shape[2], output_height), (roi[0], roi[2], x.shape[3], output_width),
        ):  # fmt: skip
            length = end - start if half else (end - start).clamp(min=1.0)
            samples = sampling_ratio or max(int((length / count).ceil()), 1)
            (n,) = bounded([count * samples])
            at = start + (torch.arange(n) + 0.5) * (length / n)
            inside = ((at >= -1) & (at <= size)).to(x.dtype)
            axes.append((*_corners(at, size), inside, samples))
        (top, bottom, v, rows, tall), (left, right, h, columns, wide) = axes
        bounded([x.shape[1], top.numel(), left.numel()])
        whole, v, inside = x[image], v[:, None], rows[:, None] * columns
        parts = torch.stack([
            whole[:, top][:, :, left] * ((1 - v) * (1 - h)), whole[:, top][:, :, right] * ((1 - v) * h),
            whole[:, bottom][:, :, left] * (v * (1 - h)), whole[:, bottom][:, :, right] * (v * h),
        ])  # fmt: skip
        sampled = (parts.amax(0)) * inside
        cells = sampled.reshape(x.shape[1], output_height, tall, output_width, wide)
        made.append(cells.amax((2, 4)))
    return torch.stack(made) if made else x.new_zeros(0, x.shape[1], output_height, output_width)


@operator("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    bounded([rois.shape[0], x.shape[1], *pooled_shape])
    return regions.roi_pool(x, rois, spatial_scale, *pooled_shape)[0]


@operator("DeformConv")
def deform_conv(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, offset_group: int = 1, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    if x.dim() != 4:
        raise NotImplementedError(f"onnx: DeformConv of {x.dim() - 2} dimensions")
    pads, strides, dilations = pads or [0] * 4, strides or [1, 1], dilations or [1, 1]
    x, padding = apart(x, pads)
    bias = x.new_zeros(w.shape[0]) if b is None else b
    weighted = mask is not None
    mask = mask if weighted else x.new_zeros(x.shape[0], 0, *offset.shape[2:])
    (down, right), (top, left), (tall, wide) = strides, padding, dilations
    return deform_conv2d(x, w, offset, mask, bias, down, right, top, left, tall, wide, group, offset_group, weighted)


@operator("AffineGrid")
def affine_grid(theta: Any, size: Any, align_corners: int = 0) -> Any:
    return F.affine_grid(theta, bounded(size.tolist()), bool(align_corners))
