"""Functions of PyTorch that are called `native_...`: what the public ones run, with their by-products."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import alias, composite, op
from tensorgrad.kernels.array import norm as kernels
from tensorgrad.ops.nn.norm import (
    _group_norm,
    _group_norm_backward,
    _group_norm_twin,
    _grouped,
    _kept_dtype,
    _wide,
    check_groups,
)
from tensorgrad.ops.rearrange import channel_shuffle
from tensorgrad.tensor import Tensor

alias("native_channel_shuffle", channel_shuffle, "function functional")


def _backward(grads, input, weight, mean, rstd, groups, eps, needs):
    g, g_mean, g_rstd = grads
    found = [None] * 3 if g is None else _group_norm_backward(g, input, weight, mean, rstd, groups, eps, needs)
    rows, parts = _grouped(_wide(input), groups), []
    if g_mean is not None:
        parts.append(g_mean.unsqueeze(2).expand(rows.shape))
    if g_rstd is not None:
        parts.append((rows - mean.unsqueeze(2)) * (-g_rstd * rstd**3).unsqueeze(2))
    if needs[0] and parts:
        through = (sum(parts) / rows._array.shape[2]).reshape(input.shape)
        found[0] = through if found[0] is None else found[0] + through
    return found


_native_group_norm = op(
    "native_group_norm_(input, weight=None, bias=None, groups: int = 1, eps: float = 1e-5)",
    lambda xp, x, w, b, groups, eps: kernels.group_norm(xp, x, groups, w, b, eps),
    twin=_group_norm_twin,
    backward=_backward,
    wrt=("input", "weight", "bias"),
    outputs=("out", "mean", "rstd"),
    differentiable_outputs=3,
    shape=_group_norm.op.shape,
    backward_name="NativeGroupNormBackward0",
    format_of=("input",),
    where="",
)  # fmt: skip


@composite("function")
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.nn.functional.group_norm` of `input`, read as (N, C, HxW), and its means and reciprocal deviations.

    Returns: the result, of the input's shape, and the statistics (N, group).
    Raises: RuntimeError for an input that is not contiguous or has not these sizes, and for groups or parameters that
    do not fit the channels.

    >>> import tensorgrad as torch
    >>> torch.native_group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), None, None, 1, 4, 1, 2, 1e-5)[1]
    tensor([[ 2., 20.]])
    """
    if input._array.size != N * C * HxW:
        raise RuntimeError(
            f"native_group_norm: expected N * C * HxW = {N} * {C} * {HxW} elements, got an input of shape "
            f"{list(input.shape)}"
        )
    if not input.is_contiguous():
        raise RuntimeError(f"native_group_norm: expected a contiguous input, got strides {input.stride()}")
    check_groups(input, C, group, weight, bias)
    out, mean, rstd = _native_group_norm(input.reshape(N, C, HxW), weight, bias, group, eps)
    kept = _kept_dtype(input, weight, bias)
    return out.reshape(input.shape), mean.to(kept), rstd.to(kept)
