"""Tables of vectors that are looked up and reduced (summed, averaged, ...) in bags."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class EmbeddingBag(Module):
    """`Embedding` followed by a sum, mean or maximum over bags of vectors, without storing the vectors.

    Args:
        num_embeddings: the number of vectors.
        embedding_dim: the size of each vector.
        max_norm: vectors with a larger norm are scaled down (in place) to this norm when they are looked up.
        norm_type: the degree of the norm for `max_norm`.
        scale_grad_by_freq: divide gradients by how often the index occurs in the batch; not for `"max"`.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: whether the gradient of `weight` is a sparse tensor of the rows that were looked up; not for `"max"`.
        include_last_offset: `offsets` ends with the end of the last bag.
        padding_idx: the index whose vector is ignored in all bags, gets no gradient and is initialized to zeros.

    `weight` is (num_embeddings, embedding_dim), initialized from N(0, 1). The arguments of a call are explained at
    `tensorgrad.nn.functional.embedding_bag`.

    Raises:
        AssertionError: `padding_idx` is out of range.

    >>> bags = torch.nn.EmbeddingBag.from_pretrained(torch.tensor([[1.0], [2.0], [4.0]]), mode="sum")
    >>> bags(torch.tensor([0, 1, 2]), torch.tensor([0, 2]))
    tensor([[3.],
            [4.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = Parameter(torch.empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight)
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Returns bags over a given table of vectors, one per row, sharing its memory.

        Args:
            embeddings: the table.
            freeze: whether the table is left unchanged by training.

        Raises:
            AssertionError: the table is not two-dimensional.
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        bags = cls(
            rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx,
        )  # fmt: skip
        bags.weight.requires_grad = not freeze
        return bags
