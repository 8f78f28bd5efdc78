"""Weight normalization: a weight as a length times a direction, w = g · v / ‖v‖ (Salimans and Kingma, 2016)."""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.errors import wrap_dim
from tensorgrad.ops.linalg.norms import norm_except_dim
from tensorgrad.tensor import Tensor


@composite("function")
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Scales `v` to the norms `g`, one for each index of `dim`, or a single one if `dim` is -1.

    >>> torch._weight_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0]]))
    tensor([[6., 8.]])
    """
    return v * (g / norm_except_dim(v, 2, dim))


@composite("function")
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Returns the result of `_weight_norm`, and the original norms of `v`, which are not differentiable.

    Raises:
        RuntimeError: If `dim` is neither the first nor the last dimension.

    >>> torch._weight_norm_interface(torch.tensor([[3.0, 4.0]]), torch.tensor([[10.0]]))
    (tensor([[6., 8.]]), tensor([[5.]]))
    """
    if dim not in (0, v.ndim - 1):
        raise RuntimeError("fused kernels can only be applied for first or last dim")
    norms = norm_except_dim(v, 2, wrap_dim(dim, v.ndim)).detach()
    return _weight_norm(v, g, dim), norms.to(dtypes.float32) if norms.dtype is dtypes.bfloat16 else norms
