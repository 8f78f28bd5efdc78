"""Averages and maxima of bins of boxes: region of interest (RoI) align and pool, also position-sensitive.

Boxes are rows (image, x1, y1, x2, y2) and have no gradient. Averages are linear in the images: the derivative of one is
a row of its own, whose derivative is the average again.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tensorgrad.dispatch.kinds import op
from tensorgrad.dtypes import int32, scalar_type
from tensorgrad.ops.create import arange
from tensorgrad.rows.op import Selection
from tensorgrad.tensor import Tensor

I32 = np.dtype("int32")


def _check(name: str, x, boxes, image_axes: bool = True) -> None:
    """Raises: RuntimeError or NotImplementedError for shapes, dtypes and boxes that do not fit."""
    if image_axes and x.ndim != 4:
        raise RuntimeError(f"{name}: expected images (N, C, H, W), but got a tensor of shape {list(x.shape)}")
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise RuntimeError(f"rois must have shape as Tensor[K, 5], but got {list(boxes.shape)}")
    if x.dtype != boxes.dtype:
        raise RuntimeError(
            "Expected tensor for input to have the same type as tensor for rois; but type "
            f"{scalar_type(x)} does not equal {scalar_type(boxes)}"
        )
    if x.dtype.kind in "biuc":
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type(x)}'")


def _check_images(name: str, boxes, count: int) -> None:
    """Raises: IndexError if a box is of an image that does not exist."""
    if isinstance(boxes, np.ndarray) and len(boxes):
        images = boxes[:, 0]
        if not ((images > -1) & (images < count)).all():
            raise IndexError(f"{name}: the boxes are of images {images.min():g} to {images.max():g}, of {count}")


def _prepared(name: str):
    def prepare(x, boxes, scale, height, width, *more):
        _check(name, x, boxes)
        _check_images(name, boxes, len(x))
        if height < 1 or width < 1:
            raise RuntimeError(f"{name}: expected at least one bin in each direction, but got {height} x {width}")
        if name.startswith("ps_") and x.shape[1] % (height * width):
            raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
        return (x, boxes, scale, height, width, *more)

    return prepare


roi_align = op(
    "roi_align(input, rois, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, "
    "aligned: bool)",
    "regions.roi_align",
    prepare=_prepared("roi_align"),
    linear="input",
    shape=lambda x, boxes, scale, height, width, *rest: (len(boxes), x.shape[1], height, width),
    input=lambda g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned, input_shape: (
        roi_align_backward(g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned, input_shape)
    ),
    doc="""The average of bilinear samples in each of `pooled_height` x `pooled_width` bins of boxes `rois` (K, 5) of
    images (N, C, H, W): (K, C, pooled_height, pooled_width).

    Args:
        spatial_scale: pixels of these images per unit of the boxes.
        sampling_ratio: samples along each side of a bin; 0 or less: one per pixel.
        aligned: whether the center of the first pixel is 0.5 instead of 0.

    >>> from tensorgrad.ops.vision.regions import roi_align
    >>> roi_align(torch.arange(16.0).reshape(1, 1, 4, 4), torch.tensor([[0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 1, 1, 2, False)
    tensor([[[[5.]]]])
    """,
    where=(),
)
roi_align_backward = op(
    "roi_align_backward(grad, rois, spatial_scale: float, pooled_height: int, pooled_width: int, "
    "sampling_ratio: int, aligned: bool, size: any)",
    "regions.roi_align_grad",
    linear="grad",
    shape=lambda g, boxes, *rest: tuple(rest[-1]),
    grad=lambda g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned: roi_align(
        g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    ),
    doc="The gradient of `roi_align` for its images of `size`.",
    where=(),
)

position_sensitive_backward = op(
    "position_sensitive_backward(grad, rois, spatial_scale: float, pooled_height: int, pooled_width: int, "
    "sampling_ratio: int, how: any, size: any)",
    "regions.position_sensitive_grad",
    linear="grad",
    shape=lambda g, boxes, *rest: tuple(rest[-1]),
    grad=lambda g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, how: _position_sensitive(
        g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, how
    ),
    doc="The gradient of `position_sensitive` for its images of `size`.",
    where=(),
)
_position_sensitive = op(
    "position_sensitive(input, rois, spatial_scale: float, pooled_height: int, pooled_width: int, "
    "sampling_ratio: int, how: any)",
    "regions.position_sensitive",
    prepare=_prepared("ps_roi_align"),
    linear="input",
    shape=lambda x, boxes, scale, height, width, *rest: (len(boxes), x.shape[1] // (height * width), height, width),
    input=lambda g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, how, input_shape: (
        position_sensitive_backward(
            g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, how, input_shape
        )
    ),
    doc="Averages of bins of boxes, each over channels of its own.",
    where=(),
)


def _with_channels(out: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `out` and the input channel that each of its elements is from (int32)."""
    channels = arange(prod(out.shape[1:]), dtype=int32, device=out.device)
    return out, channels.reshape(1, *out.shape[1:]).repeat(out.shape[0], 1, 1, 1)


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """`roi_align` (aligned) with channels of its own for each bin, and the channel that each result is from.

    >>> from tensorgrad.ops.vision.regions import ps_roi_align
    >>> x = torch.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 3, 3)
    >>> ps_roi_align(x, torch.tensor([[0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 2, 2, 1)[0]
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    return _with_channels(
        _position_sensitive(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, "samples")
    )


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The average of whole pixels in each bin, over channels of its own, and the channel that each result is from.

    As in torchvision, the last row and column of an image do not count; unlike there, neither do they in the gradient.

    >>> from tensorgrad.ops.vision.regions import ps_roi_pool
    >>> x = torch.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 3, 3)
    >>> ps_roi_pool(x, torch.tensor([[0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 2, 2)[0]
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    return _with_channels(_position_sensitive(input, rois, spatial_scale, pooled_height, pooled_width, 0, "pixels"))


# --- maxima --------------------------------------------------------------------------------------------------------

_roi_pool_gather = op(
    "roi_pool_gather(input, indices, images)",
    "regions.roi_pool_gather",
    linear="input",
    shape=lambda x, indices, images: indices.shape,
    input=lambda g, indices, images, input_shape: roi_pool_backward(g, indices, images, input_shape),
    doc="The elements of images at the indices of `roi_pool`.",
    where=(),
)
roi_pool_backward = op(
    "roi_pool_backward(grad, indices, images, size: any)",
    "regions.roi_pool_grad",
    linear="grad",
    shape=lambda g, indices, images, size: tuple(size),
    grad=lambda g, indices, images: _roi_pool_gather(g, indices, images),
    doc="The gradient of `roi_pool` for its images of `size`.",
    where=(),
)
roi_pool = op(
    "roi_pool(input, rois, spatial_scale: float, pooled_height: int, pooled_width: int)",
    "regions.roi_pool",
    prepare=_prepared("roi_pool"),
    outputs=("out", "indices"),
    selects=Selection(
        lambda input, indices, rois: _roi_pool_gather(input, indices, rois.select(1, 0)),
        lambda g, indices, rois, input_shape: roi_pool_backward(g, indices, rois.select(1, 0), input_shape),
    ),
    shape=lambda x, boxes, scale, height, width: [
        ((len(boxes), x.shape[1], height, width), dtype) for dtype in (x.dtype, I32)
    ],
    doc="""The maximum of each of `pooled_height` x `pooled_width` bins of whole pixels of boxes `rois` (K, 5) of images
    (N, C, H, W), and its index within the image plane (int32; -1 for an empty bin, whose maximum is 0).

    >>> from tensorgrad.ops.vision.regions import roi_pool
    >>> roi_pool(torch.arange(9.0).reshape(1, 1, 3, 3), torch.tensor([[0, 0.0, 0.0, 1.0, 1.0]]), 1.0, 1, 1)[0]
    tensor([[[[4.]]]])
    """,
    where=(),
)
