"""From one list of placements to another: which moves along which dimensions of the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorgrad.autograd.function import Function
from tensorgrad.distributed.tensor import transitions
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec, length_before, order_of_splits
from tensorgrad.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["CastGradient", "Regraded", "redistribute_local_tensor"]


def redistribute_local_tensor(local: Any, spec: DTensorSpec, target: Sequence[Placement]) -> Any:
    """Returns this rank's piece of a tensor under other placements. Gradients flow back.

    Pieces that were divided last are joined first; then the tensor is divided in the new way, first dimension first.

    Args:
        local: this rank's piece.
        spec: how the tensor is distributed.
        target: the new placements.
    """
    mesh = spec.mesh
    target = tuple(target)
    if mesh.get_coordinate() is None:
        return local
    for i in reversed(_to_join(spec, target)):
        placement = spec.placements[i]
        assert isinstance(placement, Shard)
        group, length = mesh.get_group(i), length_before(spec, i, placement.dim)
        after = target[i]
        if _direct(spec, target, i):
            local = transitions.exchange(local, placement.dim, after.dim, length, group)  # type: ignore[attr-defined]
        else:
            local, after = transitions.gather(local, placement.dim, length, group), Replicate()
        spec = _replaced(spec, i, after)
    order = [i for i in range(mesh.ndim) if i not in order_of_splits(target)] + order_of_splits(target)
    for i in order:
        before, after = spec.placements[i], target[i]
        if before == after:
            continue
        group = mesh.get_group(i)
        if isinstance(before, Partial):
            if isinstance(after, Shard) and before.reduce_op in ("sum", "avg"):
                local = transitions.reduce_scatter(local, after.dim, group, before.reduce_op)
            else:
                local = transitions.reduce(local, before.reduce_op, group)
                before = Replicate()
        if isinstance(before, Replicate):
            if isinstance(after, Shard):
                local = transitions.part(local, after.dim, group)
            elif isinstance(after, Partial):
                local = transitions.scaled(local, after.reduce_op, group)
        spec = _replaced(spec, i, after)
    return local


def _replaced(spec: DTensorSpec, i: int, placement: Placement) -> DTensorSpec:
    return spec.with_placements([*spec.placements[:i], placement, *spec.placements[i + 1 :]])


def _to_join(spec: DTensorSpec, target: Sequence[Placement]) -> list[int]:
    """The dimensions of the mesh whose pieces must move: they change, or one that divides before them does."""
    order, found = order_of_splits(spec.placements), []
    new_order = order_of_splits(target)
    for at, i in enumerate(order):
        dim = spec.placements[i].dim  # type: ignore[attr-defined]
        earlier = [j for j in order[:at] if spec.placements[j].is_shard(dim)]
        new_earlier = [
            j for j in (new_order[: new_order.index(i)] if i in new_order else ()) if target[j].is_shard(dim)
        ]
        if spec.placements[i] != target[i] or earlier != new_earlier or any(j in found for j in earlier):
            found.append(i)
    return found


def _direct(spec: DTensorSpec, target: Sequence[Placement], i: int) -> bool:
    """Whether pieces may go straight from one dimension of the tensor to another: nothing else divides these."""
    before, after = spec.placements[i], target[i]
    if type(before) is not Shard or type(after) is not Shard or before == after:
        return False
    others = [p for places in (spec.placements, target) for j, p in enumerate(places) if j != i]
    return not any(p.is_shard(before.dim) or p.is_shard(after.dim) for p in others)


class Regraded(Function):
    """The same piece, with a gradient that has other placements.

    `outgoing`: the gradient is placed like the tensor and gets the others; else the reverse.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Any, spec: Any, placements: Any, outgoing: bool) -> Any:
        ctx.spec, ctx.placements, ctx.outgoing = spec, placements, outgoing
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        own = tuple(Replicate() if p.is_partial() else p for p in ctx.spec.placements)
        before, after = (own, ctx.placements) if ctx.outgoing else (ctx.placements, own)
        return redistribute_local_tensor(grad, ctx.spec.with_placements(before), after), None, None, None


class CastGradient(Function):
    """The same tensor, with a gradient that is cast to a dtype."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, dtype: Any) -> Any:
        ctx.dtype = dtype
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.to(ctx.dtype), None
