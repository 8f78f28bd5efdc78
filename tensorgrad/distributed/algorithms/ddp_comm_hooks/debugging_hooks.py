"""Communication hooks for measurements."""

from __future__ import annotations

from typing import Any

from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.futures import Future

__all__ = ["noop_hook"]


def noop_hook(_: Any, bucket: GradBucket) -> Future[Any]:
    """Leaves the gradients as they are, without communication: shows how long training would take at best.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    >>> weight = torch.ones(2)
    >>> noop_hook(None, dist.GradBucket(0, torch.ones(2), [weight.shape], [weight], True)).wait()
    tensor([1., 1.])
    """
    future: Future[Any] = Future()
    future.set_result(bucket.buffer())
    return future
