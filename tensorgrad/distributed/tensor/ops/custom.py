"""Operators of `torch.library` on distributed tensors, in the ways that `register_sharding` was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.dtensor import as_dtensor
from tensorgrad.distributed.tensor.placement_types import Placement, Replicate, Shard
from tensorgrad.tensor import Tensor

__all__ = ["WAYS", "possible", "wrapped"]

# operator -> the function that lists the ways: (placements of the results, placements of the arguments)
WAYS: dict[Any, Callable[..., Any]] = {}

Way = tuple[tuple[Placement, ...], tuple[Placement, ...]]  # of the tensor arguments, and of the results


def possible(operator: Any, args: list[Any], kwargs: dict[str, Any], specs: list[DTensorSpec]) -> list[Way]:
    """The ways to run an operator along one dimension of a mesh.

    Args:
        operator: one of `WAYS`.
        args, kwargs: its arguments.
        specs: the layouts of the tensors among them, in their order.
    """
    layouts = iter(specs)
    described = [next(layouts) if isinstance(value, Tensor) else value for value in args]
    named = {name: next(layouts) if isinstance(value, Tensor) else value for name, value in kwargs.items()}
    found = []
    for results, inputs in WAYS[operator](*described, **named):
        places = [place for place in inputs if place is not None]
        if len(places) != len(specs):
            raise RuntimeError(
                f"register_sharding: {operator} has {len(specs)} tensors among its arguments, and its rule gives "
                f"placements for {len(places)}: {inputs}"
            )
        found.append((tuple(places), tuple(results)))
    return found


def wrapped(result: Any, mesh: Any, chosen: list[Way]) -> Any:
    """The results of all ranks' pieces as distributed tensors. The length of the whole is the sum of the pieces'."""
    several = isinstance(result, tuple | list)
    made = []
    for number, piece in enumerate(result if several else [result]):
        if not isinstance(piece, Tensor):
            made.append(piece)
            continue
        places = tuple(results[number] for _, results in chosen)
        shape = list(piece.shape)
        for dim, place in enumerate(places):
            if isinstance(place, Shard):
                length = torch.tensor(shape[place.dim], device="cpu")
                collectives.all_reduce(length, group=mesh.get_group(dim))
                shape[place.dim] = int(length.item())
        made.append(as_dtensor(piece, DTensorSpec(mesh, tuple(p or Replicate() for p in places), tuple(shape))))
    return type(result)(made) if several else made[0]
