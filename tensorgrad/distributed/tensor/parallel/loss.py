"""Cross-entropy of scores whose classes are divided among the ranks: nobody needs the scores of all classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.tensor import transitions
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor
from tensorgrad.distributed.tensor.ops.composites import INSTEAD
from tensorgrad.distributed.tensor.placement_types import Replicate
from tensorgrad.ops.nn.loss import checked_loss

__all__ = ["loss_parallel"]


@contextmanager
def loss_parallel() -> Iterator[None]:
    """In this context, `cross_entropy` leaves scores divided that are divided along their classes.

    The scores are a `DTensor` on a mesh of one dimension, placed `Shard` of the dimension of classes, as
    `ColwiseParallel(use_local_output=False)` gives them; targets are class indices, the same on all ranks. The ranks
    exchange the largest score, the sum of exponentials and the target's score of each sample. The loss is replicated.

    Raises:
        ValueError: the scores are not divided along their classes.
        NotImplementedError: targets are probabilities, or `label_smoothing` is given.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard, distribute_tensor
    >>> from tensorgrad.distributed.tensor.parallel import loss_parallel
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> scores = distribute_tensor(torch.zeros(2, 4), dist.init_device_mesh("cpu", (1,)), [Shard(1)])
    >>> with loss_parallel():
    ...     torch.nn.functional.cross_entropy(scores, torch.tensor([0, 3])).to_local()
    tensor(1.3863)
    >>> dist.destroy_process_group()
    """
    before = INSTEAD.get("cross_entropy")
    INSTEAD["cross_entropy"] = _cross_entropy
    try:
        yield
    finally:
        del INSTEAD["cross_entropy"]
        if before is not None:
            INSTEAD["cross_entropy"] = before


def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """`torch.nn.functional.cross_entropy`, with its arguments, of divided scores."""
    reduction = checked_loss(reduction, size_average, reduce)
    dim = 0 if input.ndim == 1 else 1
    if not isinstance(input, DTensor) or input.device_mesh.ndim != 1:
        raise ValueError("Currently loss_parallel() only supports input on one-dimensional DeviceMesh.")
    if not input.placements[0].is_shard(dim):
        raise ValueError(
            f"loss_parallel() should be enabled only when the input tensor is sharded on dimension {dim}; it is placed "
            f"{input.placements}"
        )
    target, weight = (t.full_tensor() if isinstance(t, DTensor) else t for t in (target, weight))
    if label_smoothing or target.shape == input.shape:
        raise NotImplementedError("loss_parallel: cross_entropy with label_smoothing, or with probabilities as target")
    shape = (*input.shape[:dim], *input.shape[dim + 1 :])
    if tuple(target.shape) != shape:
        raise ValueError(f"cross_entropy: expected a target of shape {shape}, got {tuple(target.shape)}")
    ignored = target == ignore_index
    outside = ~ignored & ((target < 0) | (target >= input.shape[dim]))
    if outside.any():
        raise IndexError(f"Target {target[outside][0].item()} is out of bounds.")
    mesh = input.device_mesh
    loss = _of_each(input.to_local(), target, dim, input._spec.local_shape_and_offset()[1][dim], mesh.get_group(0))
    factors = torch.ones_like(loss) if weight is None else weight[target.masked_fill(ignored, 0)]
    factors = factors.masked_fill(ignored, 0)
    loss = loss.masked_fill(ignored, 0) * factors
    if reduction != "none":
        loss = loss.sum() / factors.sum() if reduction == "mean" else loss.sum()
    return as_dtensor(loss, DTensorSpec(mesh, (Replicate(),), tuple(loss.shape)))


def _of_each(scores: Any, target: Any, dim: int, first: int, group: Any) -> Any:
    """-log softmax(scores)[target] of each sample. This rank has the classes from `first` on."""
    count = scores.shape[dim]
    padding = scores.new_full((*scores.shape[:dim], 1, *scores.shape[dim + 1 :]), float("-inf"))
    largest = torch.cat([scores.detach(), padding], dim).amax(dim, keepdim=True)  # a rank may have no class
    collectives.all_reduce(largest, ReduceOp.MAX, group)
    shifted = scores - largest
    total = transitions.reduce(shifted.exp().sum(dim), "sum", group)
    place = target - first
    mine = (place >= 0) & (place < count)
    found = torch.zeros_like(total)
    if count:
        picked = shifted.gather(dim, place.masked_fill(~mine, 0).unsqueeze(dim)).squeeze(dim)
        found = picked.masked_fill(~mine, 0)
    return total.log() - transitions.reduce(found, "sum", group)
