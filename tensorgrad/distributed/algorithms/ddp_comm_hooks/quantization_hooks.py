"""Communication hooks that send gradients as integers of 8 bits, with a scale for each row of them."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.distributed.group import or_default
from tensorgrad.futures import Future

__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]

LEVELS = 255


def _levels_of(rows: Any) -> Any:
    """For each row, the distance between two levels and the level of zero, such that its values fit: (2, rows)."""
    low, high = rows.amin(1).clamp(max=0), rows.amax(1).clamp(min=0)
    scale = ((high - low) / LEVELS).clamp(min=torch.finfo(torch.float32).eps)
    return torch.stack((scale, (-torch.round(low / scale)).clamp(0, LEVELS)))


def _gathered(tensor: Any, group: Any) -> tuple[Any, Future[Any]]:
    """Begins to gather a tensor of all ranks. Returns where they will be, and a future."""
    everyones = [torch.empty_like(tensor) for _ in range(group.size())]
    work: Any = collectives.all_gather(everyones, tensor, group, async_op=True)
    return everyones, work.get_future()


def _mean(process_group: Any, rows: Any) -> Future[Any]:
    """A future of the mean of all ranks' rows, each sent as integers."""
    group = or_default(process_group)
    mine = _levels_of(rows)
    everyones_levels, future = _gathered(mine, group)

    def exchange(_: Any) -> Any:
        scale, zero = mine.unsqueeze(2)
        integers = (torch.round(rows / scale) + zero).clamp(0, LEVELS).to(torch.uint8)
        everyones, sent = _gathered(integers, group)
        sent.wait()
        return everyones

    def add(exchanged: Any) -> Any:
        total = torch.zeros_like(rows, dtype=torch.float32)
        for integers, (scale, zero) in zip(exchanged.value(), (levels.unsqueeze(2) for levels in everyones_levels)):
            total += scale * (integers.to(torch.float32) - zero)
        return total / group.size()

    return future.then(exchange).then(add)


def quantization_pertensor_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Averages the gradients as integers of 8 bits; a bucket has one scale.

    Args:
        process_group: the group; the default one if None.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.quantization_hooks import quantization_pertensor_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(3)
    >>> bucket = dist.GradBucket(0, torch.tensor([0.0, 100.4, 255.0]), [weight.shape], [weight], True)
    >>> quantization_pertensor_hook(None, bucket).wait()
    tensor([  0., 100., 255.])
    >>> dist.destroy_process_group()
    """
    return _mean(process_group, bucket.buffer().view(1, -1)).then(lambda f: f.value().view(-1))


def quantization_perchannel_hook(process_group: Any, bucket: GradBucket, bucket_size: int = 512) -> Future[Any]:
    """Averages the gradients as integers of 8 bits; every `bucket_size` elements have a scale.

    Args:
        process_group: the group; the default one if None.
        bucket: the gradients.
        bucket_size: how many elements share a scale.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.quantization_hooks import quantization_perchannel_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(4)
    >>> bucket = dist.GradBucket(0, torch.tensor([3.3, 255.0, 0.0, 51.0]), [weight.shape], [weight], True)
    >>> quantization_perchannel_hook(None, bucket, bucket_size=2).wait()
    tensor([  3., 255.,   0.,  51.])
    >>> dist.destroy_process_group()
    """
    flat = bucket.buffer()
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % bucket_size))
    return _mean(process_group, padded.view(-1, bucket_size)).then(lambda f: f.value().view(-1)[: flat.numel()])
