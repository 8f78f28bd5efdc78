"""PyTorch's optimizer for sparse gradients, which is not available here."""

from __future__ import annotations

from typing import Any

from tensorgrad.optim.optimizer import Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Not available: it only supports sparse gradients, and all tensors here are dense.

    Raises:
        NotImplementedError: always. Use `tensorgrad.optim.Adam`, which does the same for dense gradients.

    >>> import tensorgrad as torch
    >>> torch.optim.SparseAdam([torch.ones(2, requires_grad=True)])
    Traceback (most recent call last):
        ...
    NotImplementedError: SparseAdam works on sparse gradients, which are not supported: please consider Adam instead
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SparseAdam works on sparse gradients, which are not supported: please consider Adam instead"
        )
