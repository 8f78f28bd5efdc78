"""The results of a custom function: links the tensors that `forward` created, modified or returned to the graph."""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd import modes
from tensorgrad.autograd.packing import pack_one
from tensorgrad.autograd.refused_views import CUSTOM, MULTI
from tensorgrad.autograd.saved_tensors import SavedSubclass, save
from tensorgrad.autograd.views import check_writable, keep_retaining, rebase
from tensorgrad.errors import warn
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import BY_DEVICE, STORAGES
from tensorgrad.tensor import PLAIN, VIEW, Tensor, differentiable


def link_results(ctx: Any, args: tuple, results: list, tracked: bool) -> list:
    """Links the results to the graph.

    An input that is returned unchanged becomes a view of itself. One that was marked as modified remains the same
    tensor, and its history now ends in this function.

    Raises: RuntimeError if a marked value is not a tensor, if a modified one was not returned, or if a leaf, or a view
    alongside other results, was modified.
    """
    dirty = _marked(ctx.dirty_tensors, "mark_dirty can only accept variables, but argument {} is of type {}")
    fixed = _marked(ctx.non_differentiable, "mark_non_differentiable only accepts variable arguments, but got {1}")
    if dirty - {id(t) for t in results}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function."
        )
    for tensor in ctx.dirty_tensors:
        tensor._storage.bump()
    if not getattr(ctx, "_materialize_non_diff_grads", True):
        ctx.left_none = {nr for nr, tensor in enumerate(results) if id(tensor) in fixed}
    if fixed:
        ctx._without_tangent = {nr for nr, tensor in enumerate(results) if id(tensor) in fixed}
    given = {id(a) for a in args if isinstance(a, Tensor)}
    attached = []
    for nr, tensor in enumerate(results):
        if not isinstance(tensor, Tensor):
            continue
        own, written = id(tensor) in given, id(tensor) in dirty
        if not tracked or id(tensor) in fixed or not differentiable(tensor._array.dtype):
            if own and tensor.requires_grad:  # the caller's tensor keeps requiring grad
                results[nr] = tensor.detach()
            elif own and not written:
                results[nr] = _passed_on(tensor)
            elif not written and tensor._view is not None:
                _as_custom(tensor)
            elif not written and tensor.requires_grad:
                tensor.detach_()
            continue
        if written:
            _written(ctx, nr, tensor, own, len(results))
        else:
            if own:
                results[nr] = tensor = _passed_on(tensor)
            _attach(ctx, nr, tensor)
            attached.append(tensor)
    if len(attached) > 1:
        for tensor in attached:
            if tensor._view is not None:
                tensor._view = (*tensor._view[:3], MULTI)
    return results


def _marked(tensors: tuple, complaint: str) -> set[int]:
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise RuntimeError(complaint.format(i, type(tensor).__name__))
    return {id(t) for t in tensors}


def _passed_on(tensor: Tensor) -> Tensor:
    """The tensor as a view of itself, which must not be modified while ops are recorded."""
    with modes.no_grad():
        view = tensor.view_as(tensor)
    _as_custom(view)
    return view


def _as_custom(tensor: Tensor) -> None:
    """Fixes a view at its current graph position; it may be modified only while ops are not recorded."""
    if tensor._view is not None:
        tensor._view, tensor._requires_grad = (*tensor._view[:2], tensor._storage.version, CUSTOM), VIEW


def _attach(ctx: Any, nr: int, tensor: Tensor) -> None:
    tensor._edge, tensor._requires_grad = (ctx, nr), True
    _as_custom(tensor)


def _written(ctx: Any, nr: int, tensor: Tensor, own: bool, results: int) -> None:
    if tensor.requires_grad and tensor.is_leaf and tensor._view is None:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    if not own:
        warn(
            "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
            "should be passed to ctx.mark_dirty()."
        )
    if tensor._view is None:
        keep_retaining(tensor, tensor._edge, (ctx, nr))
        tensor._edge, tensor._requires_grad, tensor._grad = (ctx, nr), True, None
        return
    if results > 1:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. This is not supported by the current autograd engine. You should either make sure "
            "the input is not a view (using .clone() for example) or make your Function only return one Tensor "
            "(potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a "
            "second one that does the other operations)."
        )
    check_writable(tensor)
    rebase(tensor, ctx)


def keep_saved(ctx: Any, args: tuple, outputs: list, tracked: bool) -> None:
    """Turns the arguments of `save_for_backward` into saved values with their graph positions; untracked, into none."""
    saved, edges, to_save = [], [], ctx.__dict__.pop("to_save")
    for i, tensor in enumerate(to_save if tracked else ()):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"save_for_backward can only save variables, but argument {i} is of type {type(tensor).__name__}"
            )
        edge = None
        if tensor is not None:
            output = next((nr for nr, t in enumerate(outputs) if t is tensor), None)
            if output is not None:
                edge = (ctx, output) if tensor._edge is not None else None
            else:
                edge = next((e for a, e in zip(args, ctx.edges, strict=True) if a is tensor), None)
        value = None if tensor is None else save(tensor)
        if LOCAL.saved_hooks and tensor is not None:
            value = pack_one(tensor.detach())
        elif tensor is not None and tensor.__class__ not in PLAIN and not any(t is tensor for t in outputs):
            value = SavedSubclass(tensor, ctx)
        saved.append(value)
        edges.append(edge)
    ctx.saved = tuple(saved)
    ctx.saved_edges = tuple(e[1] if e is not None and e[0] is ctx else e for e in edges)
    ctx.__dict__.pop("dirty_tensors"), ctx.__dict__.pop("non_differentiable")


def check_devices(ctx: Any, results: list) -> None:
    """Raises: RuntimeError if a gradient returned by `backward` is on another device than its input."""
    for i, (result, edge) in enumerate(zip(results, ctx.edges, strict=True)):
        if result is None or edge is None:
            continue
        target, nr = edge
        kind = target._array.__class__ if isinstance(target, Tensor) else target.outputs[nr][2]
        wanted = STORAGES[kind].device_type
        if result._array.__class__ is kind or wanted not in BY_DEVICE:  # a batch is on the device of its values
            continue
        if result.device.type != wanted:  # a gradient of another layout is on the device, too
            raise RuntimeError(
                f"Function {ctx.name()} returned an invalid gradient at index {i} - expected device {wanted} but got "
                f"{result.device}"
            )
