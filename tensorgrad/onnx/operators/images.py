"""Images and losses."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.onnx.operators.table import bounded, operator, pads_of


@operator("GridSample")
def grid_sample(x: Any, grid: Any, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@operator("Col2Im")
def col2im(x: Any, image: Any, block: Any, dilations: Any = None, pads: Any = None, strides: Any = None) -> Any:
    sizes, blocks = bounded(image.tolist()), bounded(block.tolist())
    n = len(sizes)
    dilations, pads, strides = dilations or [1] * n, pads or [0] * 2 * n, strides or [1] * n
    within, starts, wide = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), []
    for i in range(n):  # where each number of a block, and each block, is in the image
        length = sizes[i] + pads[i] + pads[n + i]
        steps = (length - dilations[i] * (blocks[i] - 1) - 1) // strides[i] + 1
        within = (within[:, None] * length + torch.arange(blocks[i]) * dilations[i]).reshape(-1)
        starts = (starts[:, None] * length + torch.arange(steps) * strides[i]).reshape(-1)
        wide.append(length)
    parts = x.reshape(x.shape[0], -1, within.numel() * starts.numel())
    made = torch.zeros(*parts.shape[:2], math.prod(bounded(wide)), dtype=x.dtype)
    made = made.index_add(2, (within[:, None] + starts).reshape(-1), parts).reshape(*parts.shape[:2], *wide)
    return F.pad(made, [-p for p in pads_of(pads, n)])


@operator("DepthToSpace")
def depth_to_space(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, height, width = x.shape
    inner = c // blocksize**2
    if mode == "DCR":
        x = x.reshape(n, blocksize, blocksize, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, inner, blocksize, blocksize, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, inner, height * blocksize, width * blocksize)


@operator("SpaceToDepth")
def space_to_depth(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, height, width = x.shape
    x = x.reshape(n, c, height // blocksize, blocksize, width // blocksize, blocksize)
    x = x.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(n, c * blocksize**2, height // blocksize, width // blocksize)


@operator("Einsum")
def einsum(*operands: Any, equation: str) -> Any:
    return torch.einsum(equation, *operands)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    return F.nll_loss(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss", several=True)
def softmax_cross_entropy_loss(
    x: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", count: int = 1
) -> Any:
    loss = F.cross_entropy(x, target.long(), weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, x.log_softmax(1)) if count > 1 else (loss,)
