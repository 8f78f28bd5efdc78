"""Dropout: zeroes random elements or whole channels, the same ones as PyTorch for the same seed.

Sources: Hinton et al., "Improving neural networks by preventing co-adaptation of feature detectors", 2012; Klambauer
et al., "Self-normalizing neural networks", 2017 (alpha dropout, which keeps mean and variance).
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, export, op
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import warn
from tensorgrad.kernels.array import sample as kernels
from tensorgrad.ops.create import check_tensor
from tensorgrad.ops.random.sample import mask_like, stream_for
from tensorgrad.rows.kernel_tables import device_kernel
from tensorgrad.tensor import Tensor

SELU_FLOOR = 1.7580993408473766  # minus the limit of SELU at -∞: scale · alpha


def _check(p: float, error=RuntimeError) -> None:
    if not 0.0 <= p <= 1.0:
        raise error(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(input: Tensor, p: float, features: bool, alpha: bool, in_place: bool) -> Tensor:
    array = input._array
    if features and array.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if p == 0 or not array.size:
        return input
    if p == 1:
        return input.mul_(0) if in_place else input * 0
    if input.dtype.category < dtypes.FLOATING:
        default = scalar_type(dtypes.DEFAULT.floating.numpy)
        raise RuntimeError(f"result type {default} can't be cast to the desired output type {scalar_type(array)}")
    if not (features or alpha or in_place):
        fused = _fused(input, p)
        if fused is not None:
            return fused
    shape = (*array.shape[:2], *[1] * (array.ndim - 2)) if features else None
    if not alpha:
        mask = mask_like(input, shape, kernels.dropout_mask, p)
        return input.mul_(mask) if in_place else input * mask
    mask = mask_like(input, shape, kernels.bernoulli, 1 - p)
    a = 1.0 / math.sqrt((SELU_FLOOR * SELU_FLOOR * p + 1) * (1 - p))
    shift = (mask - 1) * (SELU_FLOOR * a) + SELU_FLOOR * a * p
    mask = mask * a
    return input.mul_(mask).add_(shift) if in_place else input * mask + shift


def _fused(input: Tensor, p: float) -> Tensor | None:
    """Applies dropout in one pass, on devices that can redraw the same mask for the gradient; else returns None."""
    if input._array.__class__ is np.ndarray:
        return None
    place = device_kernel("dropout_place", input._storage.__class__)
    return None if place is None else _philox(input, p, place(stream_for(input, None, "dropout"), input._array))


# Linear in its input: the derivative drops the same elements.
_philox = op("philox_dropout(input, p: float, place: any)", None, linear="input", where=(),
             input=lambda g, p, place: _philox(g, p, place), backward_name="NativeDropoutBackward0",
             shape=lambda x, p, place: x.shape)  # fmt: skip


def _plain(name: str, features: bool, alpha: bool, doc: str) -> None:
    """Declares `torch.<name>(input, p, train)` and its in-place form."""

    def function(input: Tensor, p: float, train: bool) -> Tensor:
        _check(p)
        return _dropped(input, p, features, alpha, False) if train else input

    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        _check(p)
        return _dropped(input, p, features, alpha, True) if train else input

    for made, made_name in ((function, name), (in_place, f"{name}_")):
        made.__name__ = made.__qualname__ = made_name
        made.__doc__ = doc + (" In place." if made is in_place else "")
        export(made_name, made, "function")


_plain("dropout", False, False, "In training, zeroes each element with probability p and divides the others by 1 - p.")
_plain("feature_dropout", True, False, "`dropout` of whole channels, (N, C, *).")
_plain("alpha_dropout", False, True, "`dropout` that keeps zero mean and unit variance after SELU.")
_plain("feature_alpha_dropout", True, True, "`alpha_dropout` of whole channels, (N, C, *).")


@composite("functional")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, sets each element to 0 with probability `p` and divides the others by 1 - p.

    Args:
        p: the probability, from 0 to 1.
        training: if False, the result is `input`.
        inplace: whether the result is written into `input`.

    Raises:
        ValueError: If `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.dropout(torch.ones(4), 0.5)
    tensor([0., 0., 2., 0.])
    """
    if not 0.0 <= p <= 1.0:
        _check(p, ValueError)
    return _dropped(input, p, False, False, inplace) if training else input


@composite("functional")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """In training, sets elements to SELU's minimum with probability `p`, then restores mean 0 and variance 1.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", arXiv:1706.02515.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.alpha_dropout(torch.zeros(4), 0.5, training=True)
    tensor([-0.7792, -0.7792,  0.7792, -0.7792])
    """
    check_tensor("alpha_dropout", input)
    _check(p, ValueError)
    return _dropped(input, p, False, True, inplace) if training else input


@composite("functional")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Applies `alpha_dropout` to whole channels of (N, C, *).

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.feature_alpha_dropout(torch.zeros(1, 3, 2), 0.5, training=True)
    tensor([[[-0.7792, -0.7792],
             [-0.7792, -0.7792],
             [ 0.7792,  0.7792]]])
    """
    check_tensor("feature_alpha_dropout", input)
    _check(p, ValueError)
    return _dropped(input, p, True, True, inplace) if training else input


@composite("functional")
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Applies `dropout` to whole channels of (N, C, L) or (C, L).

    Raises:
        RuntimeError: If the number of dimensions is neither 2 nor 3.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.dropout1d(torch.ones(1, 3, 2))
    tensor([[[0., 0.],
             [0., 0.],
             [2., 2.]]])
    """
    _check(p, ValueError)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to provide "
            "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch "
            "dimension (i.e. 2D or 3D inputs)."
        )
    return _channels(input, p, training, inplace, ndim == 3)


@composite("functional")
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Applies `dropout` to whole channels of (N, C, H, W); three dimensions are interpreted as (N, C, L).

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.dropout2d(torch.ones(1, 3, 1, 2)).flatten()
    tensor([0., 0., 0., 0., 2., 2.])
    """
    _check(p, ValueError)
    ndim = input.dim()
    if ndim not in (3, 4):
        _warn_rank("dropout2d", ndim, 2, "3D or 4D")
    if ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
            "desired - "
            "input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a "
            "future "
            "release to interpret the input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D "
            "channel-wise dropout behavior, please switch to using dropout1d instead.",
        )
    return _channels(input, p, training, inplace, True)


@composite("functional")
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Applies `dropout` to whole channels of (N, C, D, H, W) or (C, D, H, W).

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.functional.dropout3d(torch.ones(1, 3, 1, 1, 2)).flatten()
    tensor([0., 0., 0., 0., 2., 2.])
    """
    _check(p, ValueError)
    ndim = input.dim()
    if ndim not in (4, 5):
        _warn_rank("dropout3d", ndim, 3, "4D or 5D")
    return _channels(input, p, training, inplace, ndim == 5)


def _warn_rank(name: str, ndim: int, spatial: int, ranks: str) -> None:
    warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future "
        "release. To retain the behavior and silence this warning, please use dropout instead. Note that "
        f"{name} exists to provide channel-wise dropout on inputs with {spatial} spatial dimensions, a channel "
        "dimension, "
        f"and an optional batch dimension (i.e. {ranks} inputs).",
    )


def _channels(input: Tensor, p: float, training: bool, in_place: bool, batched: bool) -> Tensor:
    if not training:
        return input
    if batched:
        return _dropped(input, p, True, False, in_place)
    if in_place:
        _dropped(input.unsqueeze(0), p, True, False, True)
        return input
    return _dropped(input.unsqueeze(0), p, True, False, in_place).squeeze(0)


@composite("function")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Applies `dropout` and also returns which elements were kept, as a bool tensor.

    Unlike `dropout`, it draws random numbers for p = 0 and p = 1 as well.

    Raises:
        RuntimeError: If `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.native_dropout(torch.ones(4), 0.5, True)
    (tensor([0., 0., 2., 0.]), tensor([False, False,  True, False]))
    """
    if train is False or not input.numel():
        return input.clone(), input.new_ones(input.shape, dtype=dtypes.bool)
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={1 - p}")
    place = device_kernel("dropout_place", input._storage.__class__)
    if place is not None:
        if p == 0 or p == 1:
            kept = input.new_full(input.shape, p == 0, dtype=dtypes.bool)
            return input * kept, kept
        where = place(stream_for(input, None, "dropout"), input._array)
        return _philox(input, p, where), _philox(input.new_ones(input.shape), p, where).to(dtypes.bool)
    mask = mask_like(input, None, kernels.bernoulli, 1 - p)
    return input * mask * (0.0 if p == 1 else 1.0 / (1.0 - p)), mask.to(dtypes.bool)
