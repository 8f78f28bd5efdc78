"""Products of matrices of 8-bit integers, which PyTorch has for quantized networks."""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.tensor import Tensor

_EXACT = 2**24 // (255 * 128)  # float32 holds the sums of so many products of 8-bit integers exactly


@composite("function")
def _int_mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the matrix product of 8-bit integers, in int32 and exact.

    It is computed in floating point, by BLAS, in a dtype that holds all sums exactly.

    Args:
        input: int8 or uint8, (n, k).
        mat2: int8, (k, m).
        out: int32, (n, m): the result is written to it.

    Raises:
        RuntimeError: For other dtypes, or sizes that do not fit.

    >>> a = torch.tensor([[100, -100]], dtype=torch.int8)
    >>> torch._int_mm(a, a.t())
    tensor([[20000]], dtype=torch.int32)
    """
    for name, tensor, allowed in (("self", input, (dtypes.int8, dtypes.uint8)), ("mat2", mat2, (dtypes.int8,))):
        if tensor.ndim != 2:
            raise RuntimeError(f"int_mm: Expected {name} to be of dimension 2 but got {tensor.ndim}")
        if tensor.dtype not in allowed:
            raise RuntimeError(f"int_mm: Expected {name} dtype to be int8 (of self, or uint8) but got {tensor.dtype}")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"int_mm: self.size(1) needs to match mat2.size(0) but got {input.shape[1]} and {mat2.shape[0]}"
        )
    exact = dtypes.float32 if input.shape[1] < _EXACT else dtypes.float64
    result = (input.to(exact) @ mat2.to(exact)).to(dtypes.int32)
    if out is None:
        return result
    if out.dtype is not dtypes.int32 or out.shape != result.shape:
        raise RuntimeError(
            f"int_mm: Expected result of dtype torch.int32 and shape {tuple(result.shape)}, got {out.dtype} and "
            f"{tuple(out.shape)}"
        )
    return out.copy_(result)
