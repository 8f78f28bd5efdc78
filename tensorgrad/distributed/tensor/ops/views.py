"""Views of distributed tensors that every rank can make of its own piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import unwrap
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor
from tensorgrad.distributed.tensor.placement_types import Placement, Replicate, Shard
from tensorgrad.tensor import Tensor

__all__ = ["VIEWS"]


def _moved(spec: DTensorSpec, to: Callable[[int, int], int | None]) -> tuple[Placement, ...] | None:
    """The placements of a view; None if some piece has elements of which the view's piece consists only in part.

    `to(dim, size of the mesh)` is the dimension of the view that is divided where `dim` of the tensor is.
    """
    found: list[Placement] = []
    for i, placement in enumerate(spec.placements):
        if isinstance(placement, Shard):
            after = to(placement.dim, spec.mesh.size(i))
            if type(placement) is not Shard or after is None:
                return None
            placement = Shard(after)
        elif placement.is_partial() and not placement.is_partial("sum"):
            return None
        found.append(placement)
    divided = [p.dim for p in found if isinstance(p, Shard)]
    return tuple(found) if len(set(divided)) == len(divided) else None


def _piece(tensor: Any) -> Tensor:
    return Tensor.as_subclass(tensor, Tensor)


def _shape_of(function: Any, x: DTensor, args: tuple, options: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the whole view. It raises what the view of the whole would raise."""
    return tuple(function(torch.empty(tuple(x.shape), dtype=x.dtype, device="meta"), *args, **options).shape)


def _reshaped(function: Any, x: DTensor, *args: Any, **options: Any) -> Any:
    """A dimension may be divided where the same number of elements comes before it in both shapes."""
    if any(isinstance(a, torch.dtype) for a in (*args, *options.values())):
        return NotImplemented
    before, after = tuple(x.shape), _shape_of(function, x, args, options)
    if not x.numel():
        return NotImplemented

    def to(dim: int, size: int) -> int | None:
        outer = math.prod(before[:dim])
        places = [e for e in range(len(after)) if math.prod(after[:e]) == outer]
        equal = [e for e in places if after[e] == before[dim]]
        even = [e for e in places if after[e] % size == 0 == before[dim] % size]
        return next(iter(equal or even), None)

    placements = _moved(x._spec, to)
    if placements is None:
        return NotImplemented
    spec = DTensorSpec(x.device_mesh, placements, after)
    shape = spec.local_shape()
    local = _piece(x)
    kept = shape == tuple(local.shape) and "reshape" in function.__name__
    return as_dtensor(local.view_as(local) if kept else local.reshape(shape), spec)


def _expanded(function: Any, x: DTensor, *args: Any, **options: Any) -> Any:
    after, before = _shape_of(function, x, args, options), tuple(x.shape)
    added = len(after) - len(before)
    placements = _moved(x._spec, lambda dim, size: dim + added if before[dim] == after[dim + added] else None)
    if placements is None or any(p.is_partial() for p in placements):
        return NotImplemented
    spec = DTensorSpec(x.device_mesh, placements, after)
    return as_dtensor(_piece(x).expand(spec.local_shape()), spec)


def _squeezed(function: Any, x: DTensor, *args: Any, **options: Any) -> Any:
    after, before = _shape_of(function, x, args, options), tuple(x.shape)
    if 1 in after or not x.numel():
        return NotImplemented
    placements = _moved(x._spec, lambda dim, size: sum(n != 1 for n in before[:dim]) if before[dim] != 1 else None)
    if placements is None:
        return NotImplemented
    return as_dtensor(_piece(x).squeeze([d for d, n in enumerate(before) if n == 1]), DTensorSpec(
        x.device_mesh, placements, after))  # fmt: skip


def _along(position: int, default: int | None, removed: bool = False) -> Callable[..., Any]:
    """Parts along a dimension (the argument at this position): all others may be divided."""

    def rule(function: Any, x: DTensor, *args: Any, **options: Any) -> Any:
        given = options.get("dim", args[position] if len(args) > position else default)
        if not isinstance(given, int) or not -x.ndim <= given < x.ndim:
            return NotImplemented
        cut = given % x.ndim
        placements = _moved(
            x._spec, lambda dim, size: None if dim == cut else dim - 1 if removed and dim > cut else dim
        )
        if placements is None or any(isinstance(a, Tensor) for a in args):
            return NotImplemented
        result = function(_piece(x), *args, **options)
        shape = list(x.shape)

        def wrapped(part: Tensor) -> DTensor:
            whole = [*shape[:cut], *([] if removed else [part.shape[cut]]), *shape[cut + 1 :]]
            return as_dtensor(part, DTensorSpec(x.device_mesh, placements, tuple(whole)))

        return wrapped(result) if isinstance(result, Tensor) else type(result)(map(wrapped, result))

    return rule


def _joined(function: Any, tensors: Sequence[Any], dim: int = 0, **options: Any) -> Any:
    """Tensors that are divided alike, along another dimension."""
    if options or not all(isinstance(t, DTensor) for t in tensors) or len({t._spec.placements for t in tensors}) > 1:
        return NotImplemented
    first = tensors[0]
    if any(t.ndim != first.ndim for t in tensors) or not -first.ndim <= dim < first.ndim:
        return NotImplemented
    cut = dim % first.ndim
    if len({(*t.shape[:cut], *t.shape[cut + 1 :]) for t in tensors}) > 1 or len({t.dtype for t in tensors}) > 1:
        return NotImplemented
    placements = _moved(first._spec, lambda dim, size: None if dim == cut else dim)
    if placements is None or any(p.is_partial() for p in placements):
        return NotImplemented
    shape = list(first.shape)
    shape[cut] = sum(t.shape[cut] for t in tensors)
    result = function([_piece(t) for t in tensors], dim)
    return as_dtensor(result, DTensorSpec(first.device_mesh, placements, tuple(shape)))


def _normalized(function: Any, x: Any, normalized_shape: Any, *others: Any, **options: Any) -> Any:
    """layer_norm, rms_norm: of pieces with all elements that are normalized together, and of the whole weights."""
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    if not isinstance(x, DTensor) or any(isinstance(p, Shard) and p.dim >= x.ndim - count for p in x.placements):
        return NotImplemented

    def whole(value: Any) -> Any:
        return (
            value.redistribute(placements=(Replicate(),) * x.device_mesh.ndim) if isinstance(value, DTensor) else value
        )

    named = {name: whole(value) for name, value in options.items()}
    return unwrap(function)(x, normalized_shape, *map(whole, others), **named)


def _looked_up(function: Any, input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None,
               *others: Any, **options: Any) -> Any:  # fmt: skip
    """embedding, unless it also changes the weights."""
    if max_norm is not None or options.get("scale_grad_by_freq") or any(others):
        return NotImplemented
    return unwrap(function)(input, weight, padding_idx, **options)


def _attended(function: Any, query: Any, key: Any, value: Any, *others: Any, **options: Any) -> Any:
    """Attention, where the dimensions before the last two are divided alike."""
    given = (query, key, value)
    if not all(isinstance(t, DTensor) and t.ndim == query.ndim and t.placements == query.placements for t in given):
        return NotImplemented
    if any((isinstance(p, Shard) and p.dim >= query.ndim - 2) or p.is_partial() for p in query.placements):
        return NotImplemented
    if len({t.shape[:-2] for t in given}) > 1 or any(isinstance(t, Tensor) for t in (*others, *options.values())):
        return NotImplemented
    return unwrap(function)(*given, *others, **options)


# By name: a function of (the function, its arguments), which returns NotImplemented where pieces do not suffice.
VIEWS: dict[str, Callable[..., Any]] = {
    "squeeze": _squeezed, "narrow": _along(0, None), "select": _along(0, None, removed=True),
    "unbind": _along(0, 0, removed=True), "embedding": _looked_up,
    "scaled_dot_product_attention": _attended,
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "ravel"), _reshaped),
    **dict.fromkeys(("expand", "broadcast_to"), _expanded),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _along(1, 0)),
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normalized),
}  # fmt: skip
