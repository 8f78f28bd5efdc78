"""`local_map`: a function of ordinary tensors, applied to the pieces of distributed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor.dtensor import DTensor
from tensorgrad.tensor import Tensor
from tensorgrad.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["local_map"]


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Sequence[Any] | None = None,
    in_grad_placements: Sequence[Any] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """Returns a function that calls `func` with this rank's pieces, and makes distributed tensors of its results.

    Args:
        func: the function, which may communicate; if None, a decorator is returned.
        out_placements: of the result; of several results a tuple, with None for those that are not tensors.
        in_placements: of each argument, None for those that are not distributed tensors; not checked if None.
        in_grad_placements: of the arguments' gradients; like the arguments if None.
        device_mesh: of the results; that of the first distributed argument if None.
        redistribute_inputs: whether to move arguments that lie otherwise, rather than raise an error.

    Raises (when called):
        AssertionError: numbers of placements and of arguments or results differ, or a placement is given for what is
            no tensor.
        ValueError: an argument lies otherwise than `in_placements` says.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard, ones
    >>> from tensorgrad.distributed.tensor.experimental import local_map
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> twice = local_map(lambda x: x * 2, out_placements=[Shard(0)], in_placements=([Shard(0)],))
    >>> twice(ones(2, placements=[Shard(0)])).placements
    (Shard(dim=0),)
    >>> dist.destroy_process_group()
    """
    if func is None:
        return partial(
            local_map,
            out_placements=out_placements,
            in_placements=in_placements,
            in_grad_placements=in_grad_placements,
            device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        given, structure = tree_flatten(args)
        if in_placements is not None and len(in_placements) != len(given):
            raise AssertionError(
                f"in_placements length {len(in_placements)} does not match the number of input args {len(given)}!"
            )
        distributed = [value for value in given if isinstance(value, DTensor)]
        pieces = [
            _piece(value, in_placements, in_grad_placements, number, redistribute_inputs)
            for number, value in enumerate(given)
        ]
        result = func(*tree_unflatten(pieces, structure), **kwargs)
        if not distributed:
            return result
        mesh = distributed[0].device_mesh if device_mesh is None else device_mesh
        results, form = tree_flatten(result)
        places = out_placements if isinstance(out_placements, tuple) else (out_placements,)
        if len(results) != len(places):
            raise AssertionError(
                "local_map requires one PlacementType be provided for each output value, received "
                f"{len(places)} out_placements but {len(results)} is expected!"
            )
        return tree_unflatten([_joined(value, mesh, place) for value, place in zip(results, places)], form)

    return call


def _piece(
    value: Any, places: Sequence[Any] | None, of_gradients: Sequence[Any] | None, number: int, move: bool
) -> Any:
    """This rank's piece of an argument."""
    if not isinstance(value, DTensor):
        if places is not None and not isinstance(value, Tensor) and places[number] is not None:
            raise AssertionError(f"Non-Tensor input {value} expects None placements but received {places[number]}!")
        return value
    if places is not None:
        if places[number] is None:
            raise AssertionError(f"DTensor input {value} expects placements but received None!")
        wanted = tuple(places[number])
        if value.placements != wanted:
            if not move:
                raise ValueError(
                    f"arg {value} in local_map has a mismatched placements: arg placements is {value.placements} but "
                    f"the input placements is {wanted}! If redistribute_inputs is wanted, set redistribute_inputs=True "
                    "to local_map."
                )
            value = value.redistribute(placements=wanted)
    if of_gradients is None:
        return value.to_local()
    if of_gradients[number] is None:
        raise AssertionError(f"DTensor input {value} expects in grad placements but received None!")
    return value.to_local(grad_placements=tuple(of_gradients[number]))


def _joined(value: Any, mesh: DeviceMesh, places: Any) -> Any:
    """A result as a distributed tensor, of which this rank's piece is given."""
    if isinstance(value, DTensor):
        raise AssertionError(f"torch.Tensor output expected but received {type(value)}: {value}")
    if isinstance(value, Tensor):
        return DTensor.from_local(value, mesh, places, run_check=False)
    if places is not None:
        raise AssertionError(f"Non-tensor output {value} expects None placements but received {places}!")
    return value
