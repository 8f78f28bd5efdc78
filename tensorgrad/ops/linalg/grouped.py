"""Products of groups of rows with a matrix for each group, as mixtures of experts compute them."""

from __future__ import annotations

from typing import Any

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.ops.create import zeros
from tensorgrad.ops.join import cat, stack
from tensorgrad.tensor import Tensor

_DTYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


@composite("function")
def _grouped_mm(
    input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Multiplies each group of a matrix with a matrix of its own. Groups are given by their ends.

    Args:
        input, mat2: float32, bfloat16 or float16, both the same. By their dimensions, the result is, for group i:
            (t, k) and (g, k, n): rows of the first, times `mat2[i]`; (t, n).
            (g, m, k) and (k, t): `input[i]` times columns of the second; (m, t).
            (m, t) and (t, n): columns of the first times rows of the second; (g, m, n).
            (g, m, k) and (g, k, n): as `torch.bmm`; (g, m, n).
        offs: int32, (g,): where each group ends; it begins where the one before ends. What is beyond the last is 0
            (PyTorch leaves it undefined).
        bias: not supported, as in PyTorch.
        out_dtype: nothing but the dtype of `input`.

    Raises:
        RuntimeError: For dimensions, sizes, dtypes or offsets that do not fit.

    >>> x, experts = torch.ones(3, 2), torch.tensor([[[1.0], [2.0]], [[10.0], [20.0]]])
    >>> torch._grouped_mm(x, experts, offs=torch.tensor([1, 3], dtype=torch.int32)).T
    tensor([[ 3., 30., 30.]])
    """
    _check(input, mat2, offs, bias, out_dtype)
    if offs is None:
        return input @ mat2
    ends = offs.tolist()
    begins = [0, *ends][: len(ends)]
    total = mat2.shape[1] if input.ndim == 3 else input.shape[1 if mat2.ndim == 2 else 0]
    if any(a > b for a, b in zip(begins, ends, strict=True)) or (ends and not 0 <= ends[-1] <= total):
        raise RuntimeError(f"_grouped_mm: expected offsets that ascend from 0 to {total} at most, got {ends}")
    spans = list(zip(range(len(ends)), begins, ends, strict=True))
    rest = total - (ends[-1] if ends else 0)
    if input.ndim == mat2.ndim == 2:
        if not spans:
            return zeros(0, input.shape[0], mat2.shape[1], dtype=input.dtype, device=input.device)
        return stack([input[:, a:b] @ mat2[a:b] for _, a, b in spans])
    if input.ndim == 2:
        tail = zeros(rest, mat2.shape[2], dtype=input.dtype, device=input.device)
        return cat([*[input[a:b] @ mat2[i] for i, a, b in spans], tail])
    tail = zeros(input.shape[1], rest, dtype=input.dtype, device=input.device)
    return cat([*[input[i] @ mat2[:, a:b] for i, a, b in spans], tail], 1)


@composite("functional")
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Multiplies each group of a matrix with a matrix of its own: see `torch._grouped_mm` for the shapes.

    Raises:
        RuntimeError: For dimensions, sizes, dtypes or offsets that do not fit.

    >>> x, experts = torch.ones(3, 2), torch.tensor([[[1.0], [2.0]], [[10.0], [20.0]]])
    >>> torch.nn.functional.grouped_mm(x, experts, offs=torch.tensor([1, 3], dtype=torch.int32)).T
    tensor([[ 3., 30., 30.]])
    """
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


def _check(a: Tensor, b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any) -> None:
    for name, tensor in (("mat_a", a), ("mat_b", b)):
        if tensor.dtype not in _DTYPES:
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {tensor.dtype}")
        if tensor.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d, got the shape {tuple(tensor.shape)}")
    shapes = f"got {tuple(a.shape)} and {tuple(b.shape)}"
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d: "
            f"{shapes}, {'no offsets' if offs is None else 'offsets'}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"contraction dimension of mat_a and mat_b must match, {shapes}")
    groups = {len(x) for x in (a, b) if x.ndim == 3}
    if offs is not None:
        if offs.ndim != 1:
            raise RuntimeError(f"offs has to be 1D, got the shape {tuple(offs.shape)}")
        if offs.dtype is not dtypes.int32:
            raise RuntimeError(f"Offsets have to be int32, got {offs.dtype}")
        groups.add(len(offs))
    if len(groups) > 1:
        raise RuntimeError(f"matrix batch sizes have to match, {shapes}, {sorted(groups)} groups")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype is not a.dtype:
        raise RuntimeError(f"Grouped gemm output dtype must match `mat_a` dtype: {a.dtype}, got {out_dtype}")
