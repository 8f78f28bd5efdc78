"""`torch.sparse`: functions for tensors that store only some of their elements."""

from __future__ import annotations

from typing import Any

from tensorgrad.ops.sparse.construct import (
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from tensorgrad.ops.sparse.invariants import check_sparse_tensor_invariants
from tensorgrad.sparse.gradcheck import as_sparse_gradcheck
from tensorgrad.sparse.legacy_types import (
    BFloat16Tensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from tensorgrad.sparse.products import addmm, mm, sampled_addmm, spdiags, spsolve
from tensorgrad.sparse.reductions import log_softmax, softmax, sum

__all__ = [
    "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax",
    "spdiags", "spsolve", "sum", "to_sparse_semi_structured",
]  # fmt: skip


def to_sparse_semi_structured(original_tensor: Any, transposed: bool = False) -> Any:
    """Not supported: a format for kernels of NVIDIA GPUs, with two of four elements.

    Raises:
        NotImplementedError: Always.

    >>> torch.sparse.to_sparse_semi_structured(torch.ones(4, 4))
    Traceback (most recent call last):
        ...
    NotImplementedError: sparse.to_sparse_semi_structured: the format of two in four elements is not supported...
    """
    raise NotImplementedError(
        "sparse.to_sparse_semi_structured: the format of two in four elements is not supported; use to_sparse_csr()"
    )
