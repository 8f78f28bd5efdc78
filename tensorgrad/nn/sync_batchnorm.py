"""Batch norm whose mean and variance are those of the batches of all processes of a group."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.legacy_functions import once_differentiable
from tensorgrad.distributed import collectives
from tensorgrad.distributed.group import GroupMember, not_in_group
from tensorgrad.tensor import Tensor

__all__ = ["group_to_sync", "sync_batch_norm"]


def group_to_sync(process_group: Any) -> Any:
    """Returns the group whose batches count: the given one, or the default one; None if this process is alone.

    >>> from tensorgrad.nn.sync_batchnorm import group_to_sync
    >>> group_to_sync(None) is None
    True
    """
    if GroupMember.WORLD is None or not_in_group(process_group):
        return None
    group = process_group or GroupMember.WORLD
    return group if group.size() > 1 else None


def _check_sizes(channels: int, **values: Any) -> None:
    for name, value in values.items():
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")


def _along_channels(values: Tensor, ndim: int) -> Tensor:
    return values.view(1, -1, *[1] * (ndim - 2))


class _SyncBatchNorm(Function):
    @staticmethod
    def forward(ctx, input, weight, bias, running_mean, running_var, eps, factor, group):
        channels, dims = input.size(1), [d for d in range(input.dim()) if d != 1]
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        own = torch.zeros(2 * channels + 1, dtype=x.dtype, device=x.device)  # means, sums of squares, count
        if input.numel():
            mean = x.mean(dims)
            own[:channels] = mean
            own[channels:-1] = (x - _along_channels(mean, x.dim())).square().sum(dims)
            own[-1] = input.numel() // channels
        every = torch.empty(group.size() * own.numel(), dtype=x.dtype, device=x.device)
        collectives.all_gather_single(every, own, group)
        every = every.view(group.size(), -1)
        means, squares, counts = every[:, :channels], every[:, channels:-1], every[:, -1:]
        count = counts.sum().item()
        if count < 2:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {input.size()} and {count:.0f} "
                "value per channel in all processes"
            )
        # Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979
        mean = (counts * means).sum(0) / count
        square = (squares + counts * (means - mean).square()).sum(0)
        for running, new in ((running_mean, mean), (running_var, square / (count - 1))):
            if running is not None:
                running.copy_(running * (1 - factor) + new * factor)
        scale = (square / count + eps).rsqrt()
        ctx.save_for_backward(input, weight)
        ctx.mean, ctx.scale, ctx.count, ctx.group = mean, scale, count, group
        factors = scale if weight is None else scale * weight
        out = (x - _along_channels(mean, x.dim())) * _along_channels(factors, x.dim())
        return (out if bias is None else out + _along_channels(bias, x.dim())).to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        input, weight = ctx.saved_tensors
        channels, dims = input.size(1), [d for d in range(input.dim()) if d != 1]
        grad, centred = grad.to(ctx.mean.dtype), input.to(ctx.mean.dtype) - _along_channels(ctx.mean, input.dim())
        sums = torch.cat([grad.sum(dims), (grad * centred).sum(dims)])
        grad_weight = grad_bias = grad_input = None
        if ctx.needs_input_grad[1]:
            grad_weight = (sums[channels:] * ctx.scale).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = sums[:channels].clone()
        if ctx.needs_input_grad[0]:
            collectives.all_reduce(sums, group=ctx.group)
            mean, slope = sums[:channels] / ctx.count, sums[channels:] * ctx.scale.square() / ctx.count
            scale = ctx.scale if weight is None else ctx.scale * weight
            grad_input = grad - _along_channels(mean, input.dim()) - centred * _along_channels(slope, input.dim())
            grad_input = (grad_input * _along_channels(scale, input.dim())).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None, None, None


def sync_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    eps: float,
    factor: float,
    group: Any,
) -> Tensor:
    """Batch norm with mean and variance over the batches of all members of a group; all must call it.

    The sizes of the batches may differ, and be 0. Each pass has one collective operation.

    Args:
        input: (N, C, *).
        weight, bias: one scalar per channel each, or None.
        running_mean, running_var: updated, unless None.
        eps: added to the variance.
        factor: the weight of the new statistics in the running ones.
        group: the process group.

    Raises:
        RuntimeError: sizes do not match.
        ValueError: there are fewer than two values per channel in all.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.nn.sync_batchnorm import sync_batch_norm
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> sync_batch_norm(torch.tensor([[1.0], [3.0]]), None, None, None, None, 0.0, 0.1, dist.group.WORLD)
    tensor([[-1.],
            [ 1.]])
    >>> dist.destroy_process_group()
    """
    _check_sizes(input.size(1), weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    return _SyncBatchNorm.apply(input, weight, bias, running_mean, running_var, eps, factor, group)
