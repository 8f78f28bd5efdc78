"""Distances and similarities of pairs of vectors."""

from __future__ import annotations

from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor


class PairwiseDistance(Module):
    """‖x₁ - x₂ + eps‖ₚ along the last dimension.

    Args:
        p: the degree of the norm.
        eps: added to the difference, which keeps the gradient finite at 0.
        keepdim: keep the last dimension with size 1.

    >>> torch.nn.PairwiseDistance()(torch.zeros(10, 3), torch.ones(10, 3)).shape
    torch.Size([10])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """x₁·x₂ / max(‖x₁‖ ‖x₂‖, eps) along dimension `dim`.

    Args:
        dim: the dimension of the vectors.
        eps: the least value of the norms, so that nothing is divided by zero.

    >>> torch.nn.CosineSimilarity()(torch.ones(10, 3), torch.ones(10, 3)).shape
    torch.Size([10])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-08) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
