"""PyTorch's `native_...` functions: implementations of the public ones that also return intermediate results."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import alias, composite
from tensorgrad.ops.nn.norm import check_groups, kept_dtype, native_group_norm_row
from tensorgrad.ops.rearrange import channel_shuffle
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

alias("native_channel_shuffle", channel_shuffle, "function", "functional")


@composite("function")
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `torch.nn.functional.group_norm` of `input`, viewed as (N, C, HxW).

    Returns:
        The result, of the input's shape, and the means and reciprocal standard deviations, (N, group).

    Raises:
        RuntimeError: If the input is not contiguous or not of these sizes, or groups or parameters do not fit the
            channels.

    >>> torch.native_group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), None, None, 1, 4, 1, 2, 1e-5)[1]
    tensor([[ 2., 20.]])
    """
    if input._array.size != N * C * HxW:
        raise RuntimeError(
            f"native_group_norm: expected N * C * HxW = {N} * {C} * {HxW} elements, got an input of shape "
            f"{list(input.shape)}"
        )
    if not input.is_contiguous() and whole(input) is input:
        raise RuntimeError(f"native_group_norm: expected a contiguous input, got strides {input.stride()}")
    check_groups(input, C, group, weight, bias)
    out, mean, rstd = native_group_norm_row(input.reshape(N, C, HxW), weight, bias, group, eps)
    kept = kept_dtype(input, weight, bias)
    return out.reshape(input.shape), mean.to(kept), rstd.to(kept)
