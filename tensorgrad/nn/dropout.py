"""Layers that randomly drop some of their input in training."""

from __future__ import annotations

from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class _DropoutNd(Module):
    """
    Args:
        p: the probability that an element or a channel is dropped, in [0, 1].
        inplace: write into the input.

    Raises:
        ValueError: `p` is outside [0, 1].
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, sets each element to 0 with probability `p` and divides the others by 1 - p.

    This preserves the expected value. In evaluation, the input is returned unchanged. It may have any shape.

    Args:
        p: the probability that an element is dropped, in [0, 1].
        inplace: write into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    Hinton et al., 2012, *Improving neural networks by preventing co-adaptation of feature detectors*.

    >>> torch.nn.Dropout(0.2).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Like `Dropout`, but drops whole channels of (N, C, L) or (C, L) (Tompson et al., 2015).

    Neighboring elements of a channel are usually similar, so dropping single elements would have little effect.
    `p` is the probability that a channel is dropped, in [0, 1]; `inplace` writes into the input.

    Args:
        p: the probability of each channel to be dropped.
        inplace: write the result into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.Dropout1d(0.5)(torch.ones(1, 4, 2))
    tensor([[[0., 0.],
             [0., 0.],
             [2., 2.],
             [0., 0.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Like `Dropout`, but drops whole channels of (N, C, H, W) or (N, C, L) (Tompson et al., 2015).

    Neighboring elements of a channel are usually similar, so dropping single elements would have little effect.
    `p` is the probability that a channel is dropped, in [0, 1]; `inplace` writes into the input.

    Args:
        p: the probability of each channel to be dropped.
        inplace: write the result into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.Dropout2d(0.5)(torch.ones(1, 4, 1, 2)).flatten(1)
    tensor([[0., 0., 0., 0., 2., 2., 0., 0.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Like `Dropout`, but drops whole channels of (N, C, D, H, W) or (C, D, H, W) (Tompson et al., 2015).

    Neighboring elements of a channel are usually similar, so dropping single elements would have little effect.
    `p` is the probability that a channel is dropped, in [0, 1]; `inplace` writes into the input.

    Args:
        p: the probability of each channel to be dropped.
        inplace: write the result into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.Dropout3d(0.5)(torch.ones(1, 4, 1, 1, 2)).flatten(1)
    tensor([[0., 0., 0., 0., 2., 2., 0., 0.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that preserves zero mean and unit variance, for use with SELU (Klambauer et al., 2017).

    In training, the result is a·(x, or α' with probability `p`) + b, where α' = -1.7581 is the minimum of SELU,
    a = ((1 - p)(1 + p α'²))^(-1/2) and b = -a α' p.
    `p` is the probability that an element is dropped, in [0, 1]; `inplace` has no effect, as in PyTorch.

    Args:
        p: the probability of each element to be dropped.
        inplace: write the result into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.AlphaDropout(0.5)(torch.zeros(4))
    tensor([-0.7792, -0.7792,  0.7792, -0.7792])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Like `AlphaDropout`, but drops whole channels of (N, C, *).

    `p` is the probability that a channel is dropped, in [0, 1]; `inplace` has no effect, as in PyTorch.

    Args:
        p: the probability of each channel to be dropped.
        inplace: write the result into the input.

    Raises:
        ValueError: `p` is outside [0, 1].

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.FeatureAlphaDropout(0.5)(torch.zeros(1, 4, 2))
    tensor([[[-0.7792, -0.7792],
             [-0.7792, -0.7792],
             [ 0.7792,  0.7792],
             [-0.7792, -0.7792]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
