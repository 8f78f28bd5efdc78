"""The steps of `torch.vmap`, under PyTorch's names: libraries replace them to map over classes of their own.

`vmap` (func/vmap.py) finds them here at each call. What PyTorch numbers as the level is an object here, which
these functions only pass on (transforms/batch.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch_map import Batch
from tensorgrad.utils._pytree import TreeSpec, row_of, tree_flatten, tree_unflatten

# --- inputs ----------------------------------------------------------------------------------------------------------


def _process_batched_inputs(in_dims: Any, args: tuple, func: Callable) -> tuple[int, list, list, TreeSpec]:
    """The number of samples, and the flattened arguments, each with its batch dimension."""

    def who() -> str:
        return f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>)"

    if not isinstance(in_dims, int | tuple):
        raise ValueError(
            f"{who()}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_get_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
            "vmap over a function with no inputs. The latter is unsupported."
        )
    values, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{who()}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{shown(tree_flatten(in_dims)[1])} but inputs has structure {shown(spec)}."
        )
    sizes = []
    for i, (value, dim) in enumerate(zip(values, dims, strict=True)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{who()}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{who()}: Got in_dim={dim} for an input but the input is of type {type(value)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        shape = value._array.shape
        rank = len(shape)
        if not -rank <= dim < rank:
            raise ValueError(
                f"{who()}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {rank} "
                f"so expected in_dim to satisfy -{rank} <= in_dim < {rank}."
            )
        dims[i] = dim = dim % rank
        sizes.append(shape[dim])
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if sizes.count(sizes[0]) != len(sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    return sizes[0], dims, values, spec


def _broadcast_to_and_flatten(outer: Any, spec: TreeSpec) -> list | None:
    """Expands a prefix of a nested structure to one value for each leaf; None if it is not a prefix."""
    if outer is None or outer.__class__ is int:
        return [outer] * spec.num_leaves
    row = row_of(outer)
    if row is None:
        return [outer] * spec.num_leaves
    children, context = row.flatten_fn(outer)
    if (row.type, context) != (spec.type, spec.context) or len(children) != len(spec.children_specs):
        return None
    spread: list = []
    for child, inner in zip(children, spec.children_specs, strict=True):
        part = _broadcast_to_and_flatten(child, inner)
        if part is None:
            return None
        spread += part
    return spread


def _create_batched_inputs(flat_in_dims: list, flat_args: list, vmap_level: Batch, args_spec: TreeSpec) -> Any:
    """The arguments, in which tensors with a batch dimension stand for one sample."""
    given = [
        value if dim is None else _add_batch_dim(value, dim, vmap_level)
        for value, dim in zip(flat_args, flat_in_dims, strict=True)
    ]
    return tree_unflatten(given, args_spec)


def _add_batch_dim(tensor: Tensor, in_dim: int, vmap_level: Batch) -> Tensor:
    """The tensor that stands for one sample of a batch."""
    return vmap_level.batched(tensor, in_dim)


def shown(spec: TreeSpec) -> str:
    if spec.type is None:
        return "*"
    return f"TreeSpec({spec.type.__name__}, {spec.context}, [{', '.join(map(shown, spec.children_specs))}])"


# --- outputs ---------------------------------------------------------------------------------------------------------


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: Batch, batch_size: int, func: Callable) -> Any:
    """The results of a call, each with its batch dimension."""
    flat, spec = tree_flatten(batched_outputs)
    places = _places(batched_outputs, spec, out_dims, func)
    name = _get_name(func)
    with vmap_level.off():
        made = [_taken(name, v, vmap_level, batch_size, place) for v, place in zip(flat, places, strict=True)]
    return tree_unflatten(made, spec)


def _taken(name: str, value: Any, level: Batch, size: int, dim: int | None) -> Any:
    """A result with its batch at `dim`, for use outside of the level. Raises: ValueError if that cannot be."""
    if not isinstance(value, Tensor):
        if dim is None:
            return value
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    found, mapped = level.value_of(value)
    if dim is None:
        if mapped:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return found
    if not mapped:
        found = found.expand(size, *found.shape)
    return found.movedim(0, dim) if dim else found


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: Batch, batch_size: int, out_dim: Any) -> Any:
    """One result of a call, with its batch at `out_dim`."""
    with vmap_level.off():
        return _taken(name, batched_output, vmap_level, batch_size, out_dim)


def _remove_batch_dim(tensor: Tensor, vmap_level: Batch, batch_size: int, out_dim: int) -> Tensor:
    """The tensor of all samples, with the batch at `out_dim`."""
    return _maybe_remove_batch_dim("", tensor, vmap_level, batch_size, out_dim)


def _places(result: Any, spec: TreeSpec, out_dims: Any, func: Callable) -> list:
    """The batch dimension of each result."""
    if isinstance(result, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
            f"structure of `outputs`. out_dims has structure {shown(tree_flatten(out_dims)[1])} but outputs has "
            f"structure {shown(spec)}."
        )
    return dims


def _get_name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return func.__name__
    if isinstance(func, functools.partial):
        return f"functools.partial({_get_name(func.func)}, ...)"
    return repr(func)
