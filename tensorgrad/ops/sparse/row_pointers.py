"""`torch._convert_indices_from_coo_to_csr` and back: sorted row numbers, or where each row begins."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import int32, int64
from tensorgrad.ops.create import arange, zeros
from tensorgrad.ops.join import cat, stack
from tensorgrad.ops.rearrange import repeat_interleave
from tensorgrad.ops.sort import bincount
from tensorgrad.tensor import Tensor


@composite("function")
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Returns where each of `size` rows begins, and the end of the last, for sorted row numbers.

    >>> torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2]), 4)
    tensor([0, 2, 2, 3, 3])
    """
    if input.dim() != 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.dim()} dimensional tensor.")
    if input.dtype not in (int32, int64):
        raise NotImplementedError(f'"convert_indices_from_coo_to_csr" not implemented for {input.dtype}')
    ends = bincount(input, minlength=size).cumsum(0)
    return cat([zeros(1, dtype=int64, device=input.device), ends]).to(int32 if out_int32 else int64)


@composite("function")
def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Returns the row and column numbers, shape (2, nnz), of a matrix in the layout CSR; of CSC with `transpose`.

    Raises:
        NotImplementedError: For a batch of matrices.

    >>> torch._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 0, 1]))
    tensor([[0, 0, 2],
            [1, 0, 1]])
    """
    if crow_indices.dim() != 1:
        raise NotImplementedError("_convert_indices_from_csr_to_coo: there is no conversion of batches of matrices")
    lengths = crow_indices.diff()
    rows = repeat_interleave(arange(len(lengths), device=lengths.device), lengths)
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    return stack([part.to(int32 if out_int32 else int64) for part in pair])
