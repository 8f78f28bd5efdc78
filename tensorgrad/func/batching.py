"""`vmap`: turns a function of one sample into a function of a batch.

The function runs once, on tensors that stand for one sample each and hold all of them (dispatch/batched.py): every op
acts on the whole batch at once. This file takes the arguments of the call apart, and puts the results together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.dispatch.over_batch import Batch
from tensorgrad.tensor import Tensor
from tensorgrad.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """Maps `func` over a batch: returns a function whose arguments and results have an additional dimension.

    Args:
        func: Maps tensors, and any other arguments, to tensors; both may be nested in tuples, lists and dictionaries.
        in_dims: The batch dimension of the arguments: an integer for all of them, or nested like the arguments
            (a prefix of the nesting suffices); `None` for an argument that is the same for all samples.
        out_dims: The batch dimension of the results; `None` for a result that is the same for all samples.
        randomness: `"error"`: `func` may draw no random values (from the default generator); `"different"`: each
            sample gets its own; `"same"`: all get the same.
        chunk_size: How many samples are computed at once; all of them if it is None.

    Raises:
        ValueError: If arguments, `in_dims`, results and `out_dims` do not match; the message says which.
        RuntimeError: If random values were drawn that are not allowed.

    >>> import tensorgrad as torch
    >>> batched_dot = torch.func.vmap(torch.dot)
    >>> batched_dot(torch.ones(2, 3), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    tensor([ 6., 15.])
    >>> gradients = torch.func.vmap(torch.func.grad(lambda w, x: (w * x) ** 2), in_dims=(None, 0))
    >>> gradients(torch.tensor(2.0), torch.tensor([1.0, 3.0]))
    tensor([ 4., 36.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        _check_out_dims(out_dims, func)
        size, dims, values, spec = _batch(in_dims, args, func)

        def part(start: int, stop: int) -> tuple[list, list, TreeSpec]:
            given = [
                v if dim is None or stop - start == size else v.narrow(dim, start, stop - start)
                for v, dim in zip(values, dims, strict=True)
            ]
            return _run(func, given, dims, spec, kwargs, stop - start, randomness, out_dims)

        if chunk_size is None or chunk_size >= size:
            flat, _, outer = part(0, size)
            return tree_unflatten(flat, outer)
        parts = [part(start, min(start + chunk_size, size)) for start in range(0, size, chunk_size)]
        _, places, outer = parts[0]
        joined = [
            column[0] if place is None else torch.cat(column, place)
            for column, place in zip(zip(*(p[0] for p in parts), strict=True), places, strict=True)
        ]
        return tree_unflatten(joined, outer)

    return mapped


def _run(
    func: Callable, values: list, dims: list, spec: TreeSpec, kwargs: dict, size: int, randomness: str, out_dims: Any
) -> tuple[list, list, TreeSpec]:
    """The results for a batch of this size, flattened, their batch dimensions, and how they are nested."""
    with Batch(size, randomness) as level:
        given = [v if dim is None else level.batched(v, dim) for v, dim in zip(values, dims, strict=True)]
        result = func(*tree_unflatten(given, spec), **kwargs)
        flat, outer = tree_flatten(result)
        places = _places(result, outer, out_dims, func)
        with level.off():
            out = [_taken(level, v, place, func) for v, place in zip(flat, places, strict=True)]
    return out, places, outer


def _taken(level: Batch, value: Any, dim: int | None, func: Callable) -> Any:
    """A result with its batch at `dim`, for use outside of the level."""
    if not isinstance(value, Tensor):
        if dim is None:
            return value
        raise ValueError(
            f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(value)}. Did you mean "
            "to set out_dims= to None for output?"
        )
    found, mapped = level.value_of(value)
    if dim is None:
        if mapped:
            name = _name(func)
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return found
    if not mapped:
        found = found.expand(level.size, *found.shape)
    return found.movedim(0, dim) if dim else found


# --- inputs ----------------------------------------------------------------------------------------------------------


def _batch(in_dims: Any, args: tuple, func: Callable) -> tuple[int, list, list, TreeSpec]:
    """The number of samples, and the flattened arguments, each with its batch dimension."""

    def who() -> str:
        return f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"

    if not isinstance(in_dims, int | tuple):
        raise ValueError(
            f"{who()}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    values, spec = tree_flatten(args)
    dims = _spread(in_dims, spec)
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


def _spread(outer: Any, spec: TreeSpec) -> list | None:
    """Expands a prefix of a nested structure to one value for each leaf; None if it is not a prefix."""
    if outer is None or outer.__class__ is int:
        return [outer] * spec.num_leaves
    children, mine = tree_flatten(outer, is_leaf=lambda value: value is not outer)
    if mine.is_leaf():
        return [outer] * spec.num_leaves
    if (mine.type, mine.context) != (spec.type, spec.context) or len(children) != len(spec.children_specs):
        return None
    parts = [_spread(child, inner) for child, inner in zip(children, spec.children_specs, strict=True)]
    return None if None in parts else [value for part in parts for value in part]  # type: ignore[union-attr]


def shown(spec: TreeSpec) -> str:
    if spec.type is None:
        return "*"
    return f"TreeSpec({spec.type.__name__}, {spec.context}, [{', '.join(map(shown, spec.children_specs))}])"


# --- outputs ---------------------------------------------------------------------------------------------------------


def _check_out_dims(out_dims: Any, func: Callable) -> None:
    def check(dim: Any) -> None:
        if dim is not None and not isinstance(dim, int):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                "collection of ints representing where in the outputs the vmapped dimension should appear."
            )

    if out_dims.__class__ is not int:
        tree_map(check, out_dims)


def _places(result: Any, spec: TreeSpec, out_dims: Any, func: Callable) -> list:
    """The batch dimension of each result."""
    if isinstance(result, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    dims = _spread(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
            f"of `outputs`. out_dims has structure {shown(tree_flatten(out_dims)[1])} but outputs has structure "
            f"{shown(spec)}."
        )
    return dims


def _name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return func.__name__
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return repr(func)
