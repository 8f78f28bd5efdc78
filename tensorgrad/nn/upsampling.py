"""Resizing images: layers around `torch.nn.functional.interpolate`."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class Upsample(Module):
    """Resizes (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size`, or by `scale_factor`.

    Args:
        size, scale_factor: one of the two, as a scalar or one value per spatial dimension.
        mode: "nearest", "linear", "bilinear", "bicubic", "trilinear", ...: see `torch.nn.functional.interpolate`.
        align_corners: align the centers of the outermost elements instead of their outer edges.
        recompute_scale_factor: compute the factor from the (rounded) sizes instead of using the given one.

    >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> torch.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)(x)[0, 0, 0]
    tensor([0.0000, 0.2500, 0.7500, 1.0000])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"

    def __setstate__(self, state: dict) -> None:
        super().__setstate__({"recompute_scale_factor": True, **state})  # the behavior of old checkpoints


class UpsamplingNearest2d(Upsample):
    """Resizes (N, C, H, W) by nearest neighbors, `mode="nearest"`.

    Args:
        size: the size of the result, (H, W) or one number for both.
        scale_factor: alternatively, the factor by which it is larger, or one per dimension.

    out[h, w] = input[⌊h·H/H'⌋, ⌊w·W/W'⌋], where H' and W' are the new sizes.

    >>> torch.nn.UpsamplingNearest2d(scale_factor=2)(torch.tensor([[[[1.0, 2.0]]]]))
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes (N, C, H, W) by bilinear interpolation with aligned corners.

    Args:
        size: the size of the result, (H, W) or one number for both.
        scale_factor: alternatively, the factor by which it is larger, or one per dimension.

    out[h, w] is at row h·(H - 1)/(H' - 1) and column w·(W - 1)/(W' - 1), where H' and W' are the new sizes.

    >>> torch.nn.UpsamplingBilinear2d(size=(1, 4))(torch.tensor([[[[0.0, 3.0]]]]))
    tensor([[[[0., 1., 2., 3.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
