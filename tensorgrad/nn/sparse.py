"""Tables of vectors that are looked up by index."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor


class Embedding(Module):
    """A table of `num_embeddings` vectors, looked up by index: (*) to (*, embedding_dim).

    Args:
        num_embeddings: the number of vectors.
        embedding_dim: the size of each vector.
        padding_idx: the index whose vector gets no gradient and is initialized to zeros.
        max_norm: vectors with a larger norm are scaled down (in place) to this norm when they are looked up.
        norm_type: the degree of the norm for `max_norm`.
        scale_grad_by_freq: divide gradients by how often the index occurs in the batch.
        sparse: whether the gradient of `weight` is a sparse tensor of the rows that were looked up. The optimizers
            `SparseAdam`, `SGD` and `Adagrad` take such gradients, and then move only these rows.

    `weight` is (num_embeddings, embedding_dim), initialized from N(0, 1).

    Raises:
        AssertionError: `padding_idx` is out of range.

    >>> torch.nn.Embedding(10, 3, padding_idx=0)(torch.tensor([0, 0])).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            empty = torch.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(empty, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draws new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text + (", sparse=True" if self.sparse else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Returns an embedding over a given table of vectors, one per row, sharing its memory.

        Args:
            embeddings: the table.
            freeze: whether the table is left unchanged by training.

        Raises:
            AssertionError: the table is not two-dimensional.
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings,
            _freeze=freeze,
        )  # fmt: skip
