"""The communication hook of post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2020).

Gradients are averaged over all processes at first, and later only within small groups; then the parameters are averaged
every few steps (`model_averaging`, `PostLocalSGDOptimizer`).
"""

from __future__ import annotations

import logging
from typing import Any

from tensorgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import average
from tensorgrad.distributed.grad_bucket import GradBucket
from tensorgrad.distributed.process_group import new_subgroups
from tensorgrad.futures import Future

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]

logger = logging.getLogger(__name__)


class PostLocalSGDState:
    """The settings of post-local SGD, and the number of steps so far.

    Args:
        process_group: the group for the first steps; the default one if None.
        subgroup: the group for later steps; if None, one for each machine's CUDA devices.
        start_localSGD_iter: how many steps use the first group.
        post_local_gradient_allreduce: whether gradients are averaged at all after these.

    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
    >>> PostLocalSGDState(None, None, start_localSGD_iter=100).iter
    0
    """

    __slots__ = ("iter", "post_local_gradient_allreduce", "process_group", "start_localSGD_iter", "subgroup")

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        logger.info("Local SGD will be started after %s iterations", start_localSGD_iter)
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts a step when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
        if self.iter == self.start_localSGD_iter:
            logger.info("Start to apply local SGD after %s iterations.", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Any]:
    """Averages the gradients over all processes in the first steps, and then over a smaller group, or not at all.

    Args:
        state: the settings, and the number of steps so far.
        bucket: the gradients.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    ...     PostLocalSGDState, post_localSGD_hook)
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> weight = torch.ones(2)
    >>> bucket = dist.GradBucket(0, torch.ones(2), [weight.shape], [weight], True)
    >>> post_localSGD_hook(PostLocalSGDState(None, None, 5), bucket).wait()
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return average(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        unchanged: Future[Any] = Future()
        unchanged.set_result(bucket.buffer())
        return unchanged
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return average(state.subgroup, bucket.buffer())
