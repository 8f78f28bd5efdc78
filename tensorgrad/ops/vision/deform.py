"""Deformable convolution: each tap of each window reads the image at a place of its own.

The image is sampled at these places, and the samples are multiplied by the weights as in any convolution. Source:
J. Dai et al., "Deformable convolutional networks" (2017); X. Zhu et al., "Deformable ConvNets v2" (2019).
"""

from __future__ import annotations

from tensorgrad.dispatch.kinds import op
from tensorgrad.kernels.array.grid import grid_sample, grid_sample_grad
from tensorgrad.ops.create import arange
from tensorgrad.ops.join import stack
from tensorgrad.ops.nn.grid import sampled_by_ops
from tensorgrad.tensor import Tensor

_sample = op(
    "sample_at(input, places)",
    lambda xp, x, places: grid_sample(xp, x, places, "bilinear", "zeros", None),
    twin=lambda input, places: sampled_by_ops(input, places, "bilinear", "zeros", None),
    backward_kernel=lambda xp, g, input, places, needs: grid_sample_grad(
        xp, g, input, places, "bilinear", "zeros", None, needs
    ),
    shape=lambda x, places: (*x.shape[:2], *places.shape[1:-1]),
    doc="Images (N, C, H, W) sampled at places (N, H', W', 2), which are pairs x, y in pixels: (N, C, H', W').",
    where=(),
)


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Convolves images (N, C, H, W) whose windows are moved tap by tap: (N, C_out, H', W').

    Args:
        weight: (C_out, C / groups, kernel height, kernel width).
        offset: how far each tap is moved, y then x, (N, 2 * offset_groups * taps, H', W').
        mask: what each tap is multiplied by if `use_mask`, (N, offset_groups * taps, H', W').
        bias: (C_out,).

    Raises:
        RuntimeError: If sizes do not fit together.

    >>> from tensorgrad.ops.vision.deform import deform_conv2d
    >>> x, weight = torch.arange(9.0).reshape(1, 1, 3, 3), torch.ones(1, 1, 1, 1)
    >>> half = torch.tensor([0.0, 0.5]).reshape(1, 2, 1, 1).expand(1, 2, 3, 3)
    >>> none = torch.zeros(1, 0, 3, 3)
    >>> deform_conv2d(x, weight, half, none, torch.zeros(1), 1, 1, 0, 0, 1, 1, 1, 1, False)[0, 0, 0]
    tensor([0.5000, 1.5000, 1.0000])
    """
    _check(input, weight, offset, mask, (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w), groups,
           offset_groups, use_mask)  # fmt: skip
    batch, channels, height, width = input.shape
    outs, _, rows, columns = weight.shape
    taps = rows * columns
    ys = _taps(input, rows, dilation_h, offset.shape[2], stride_h, pad_h).reshape(rows, 1, -1, 1)
    xs = _taps(input, columns, dilation_w, offset.shape[3], stride_w, pad_w).reshape(1, columns, 1, -1)
    moved = offset.reshape(batch, offset_groups, rows, columns, 2, *offset.shape[2:])
    places = stack([moved.select(4, 1) + xs, moved.select(4, 0) + ys], -1)
    places = places.reshape(batch * offset_groups, taps * offset.shape[2], offset.shape[3], 2)
    images = input.reshape(batch * offset_groups, channels // offset_groups, height, width)
    samples = _sample(images, places)
    if use_mask:
        samples = samples * mask.reshape(batch * offset_groups, 1, *samples.shape[2:])
    table = samples.reshape(batch, groups, channels // groups * taps, offset.shape[2] * offset.shape[3])
    out = weight.reshape(groups, outs // groups, -1) @ table
    return out.reshape(batch, outs, *offset.shape[2:]) + bias.reshape(1, outs, 1, 1)


def _taps(like: Tensor, taps: int, dilation: int, windows: int, stride: int, pad: int) -> Tensor:
    """Returns where the taps of windows are along one dimension, (taps, windows)."""
    options = {"dtype": like.dtype, "device": like.device}
    first = arange(windows, **options) * stride - pad
    return (arange(taps, **options) * dilation).unsqueeze(1) + first


def _check(input, weight, offset, mask, steps, groups: int, offset_groups: int, use_mask: bool) -> None:
    """Raises: RuntimeError if sizes do not fit together."""
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w = steps
    for name, tensor in {"input": input, "offset": offset, "weight": weight}.items():
        if tensor.dim() != 4:
            raise RuntimeError(f"deform_conv2d: expected {name} to have 4 dimensions, but got {list(tensor.shape)}")
    for name, (vertical, horizontal), least in (
        ("stride", (stride_h, stride_w), 1), ("padding", (pad_h, pad_w), 0), ("dilation", (dilation_h, dilation_w), 1)
    ):  # fmt: skip
        if vertical < least or horizontal < least:
            raise RuntimeError(f"{name} should be at least {least}, but got {vertical} and {horizontal}")
    if weight.shape[1] * groups != input.shape[1]:
        raise RuntimeError(
            f"deform_conv2d: expected {weight.shape[1] * groups} input channels (those of weight times groups), but "
            f"got {input.shape[1]}"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(f"deform_conv2d: {weight.shape[0]} output channels cannot be divided into {groups} groups")
    if offset_groups < 1 or input.shape[1] % offset_groups:
        raise RuntimeError(
            f"deform_conv2d: {input.shape[1]} input channels cannot be divided into {offset_groups} offset groups"
        )
    taps = weight.shape[2] * weight.shape[3]
    if offset.shape[1] != offset_groups * 2 * taps:
        raise RuntimeError(f"offset.shape[1] is not valid: got: {offset.shape[1]} expected: {offset_groups * 2 * taps}")
    if use_mask and mask.shape[1] != offset_groups * taps:
        raise RuntimeError(f"mask.shape[1] is not valid: got: {mask.shape[1]} expected: {offset_groups * taps}")
    if input.shape[0] != offset.shape[0] or (use_mask and mask.shape[0] != offset.shape[0]):
        raise RuntimeError(
            "invalid batch size of offset" if input.shape[0] != offset.shape[0] else "invalid batch size of mask"
        )
    size = tuple(
        (n + 2 * pad - (dilation * (taps - 1) + 1)) // stride + 1
        for n, taps, stride, pad, dilation in zip(
            input.shape[2:],
            weight.shape[2:],
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            strict=True,
        )
    )
    if min(size) < 1:
        raise RuntimeError(f"Calculated output size too small - out_h: {size[0]} out_w: {size[1]}")
    for name, given in {"offset": offset, "mask": mask}.items():
        if (name == "offset" or use_mask) and tuple(given.shape[2:]) != size:
            raise RuntimeError(
                f"{name} output dims: ({given.shape[2]}, {given.shape[3]}) - computed output dims: {size}"
            )
