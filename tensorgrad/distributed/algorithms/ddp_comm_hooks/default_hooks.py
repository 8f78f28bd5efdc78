"""Communication hooks that average gradients, as they are or in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.distributed.group import or_default
from tensorgrad.futures import Future

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper",
]  # fmt: skip


def sum_of(group: Any, tensor: Any) -> Future[Any]:
    """Begins to add up a tensor over a group, in place. Returns a future of a list of that tensor.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import sum_of
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> sum_of(dist.group.WORLD, torch.ones(2)).wait()
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    work: Any = collectives.all_reduce(tensor, group=group, async_op=True)
    return work.get_future()


def average(process_group: Any, tensor: Any) -> Future[Any]:
    """Returns a future of a tensor's mean over the group, computed in place.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import average
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> average(None, torch.ones(2)).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    group = or_default(process_group)
    tensor.div_(group.size())  # first, so that sums of float16 do not overflow
    return sum_of(group, tensor).then(lambda f: f.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Averages the gradients: what `DistributedDataParallel` does without a hook.

    Args:
        process_group: the group; the default one if None.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> allreduce_hook(None, dist.GradBucket(0, torch.ones(2), [weight.shape], [weight], True)).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return average(process_group, bucket.buffer())


def _average_as(dtype: Any, process_group: Any, bucket: GradBucket) -> Future[Any]:
    buffer = bucket.buffer()
    return average(process_group, buffer.to(dtype)).then(lambda f: buffer.copy_(f.value()))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Averages the gradients in float16.

    Args:
        process_group: the group; the default one if None.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> bucket = dist.GradBucket(0, torch.full((2,), 1.0001), [weight.shape], [weight], True)
    >>> fp16_compress_hook(None, bucket).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _average_as(torch.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Averages the gradients in bfloat16.

    Args:
        process_group: the group; the default one if None.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> bucket = dist.GradBucket(0, torch.full((2,), 1.001), [weight.shape], [weight], True)
    >>> bf16_compress_hook(None, bucket).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _average_as(torch.bfloat16, process_group, bucket)


def _wrapper(dtype: Any, hook: Callable[[Any, GradBucket], Future[Any]]) -> Callable[[Any, GradBucket], Future[Any]]:
    def compressed(state: Any, bucket: GradBucket) -> Future[Any]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda f: buffer.copy_(f.value()))

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future[Any]]) -> Callable[[Any, GradBucket], Future[Any]]:
    """Returns a hook that gives another one the gradients in float16.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_wrapper
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> bucket = dist.GradBucket(0, torch.full((2,), 1.0001), [weight.shape], [weight], True)
    >>> fp16_compress_wrapper(allreduce_hook)(None, bucket).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _wrapper(torch.float16, hook)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future[Any]]) -> Callable[[Any, GradBucket], Future[Any]]:
    """Returns a hook that gives another one the gradients in bfloat16.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_wrapper
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> bucket = dist.GradBucket(0, torch.full((2,), 1.001), [weight.shape], [weight], True)
    >>> bf16_compress_wrapper(allreduce_hook)(None, bucket).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    return _wrapper(torch.bfloat16, hook)
