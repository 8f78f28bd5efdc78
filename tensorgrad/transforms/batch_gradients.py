"""Backward passes within `vmap`: the formulas of an op run on values at once, where its kind allows it.

A formula is code over tensors, and works on samples like any other code: each of its ops then runs its own batching
rule. But the gradient of a pointwise op is pointwise, too, and that of an op along a dimension works along it. So a
node of such an op is made into one of the values, and that gives its gradients as if there were no batch: from arrays,
if the row says how and no transform is further out.
"""

from __future__ import annotations

import functools
from typing import Any

from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import Packed, raise_freed, raise_modified
from tensorgrad.rows.kernel_tables import asked_backward, in_turn
from tensorgrad.rows.op import Op
from tensorgrad.tensor import Tensor, share
from tensorgrad.transforms.batch import Batch, BatchedArray
from tensorgrad.transforms.batch_rules import DIMS, as_value, behind, on_arrays, run_on_arrays, shifted
from tensorgrad.transforms.transform import only_recorded

_KINDS = ("pointwise", "same shape")
_suited: dict[Op, bool] = {}


def gradients(level: Batch, node: Any, grads: list) -> list:
    """The gradients of a node's inputs, given that of its output."""
    op = node.op
    suited = _suited.get(op)
    if suited is None:
        kept = all(name in DIMS or not name.endswith(("_shape", "dim")) for name in op.kept)
        suited = op.kind in _KINDS and len(op.outputs) == 1 and kept and not op.batch and not op.cache
        _suited[op] = suited
    if suited and not GRAD.enabled:
        with level.off():
            made = _on_values(level, node, grads[0])
            if made is not None:
                rank, g, of_values = made
                around = level.around
                if only_recorded(around) and op.backward_kernel and _broadcasts(of_values, g):
                    found = op.compiled.on_tensors(of_values, [g])  # the kernel may not know that arrays broadcast
                elif around:
                    found = around[-1].gradients(of_values, [g])
                else:
                    found = op.compiled.backward(of_values, [g])
                results: list[Tensor | None] = []
                for r in found:
                    results.append(None if r is None else grads[0] if r is g else _sample(level, r, rank))
                return results
    elif op.batch_backward and not GRAD.enabled:
        found = _by_kernel(level, node, grads[0])
        if found is not NotImplemented:
            return found
    return op.compiled.on_tensors(node, grads)


def _by_kernel(level: Batch, node: Any, g: Tensor) -> Any:
    """The gradients by the row's `batch_backward`."""
    op = node.op
    if node.saved is FREED:
        raise_freed()
    values = [*node.args, g._array]
    for name, entry in zip(op.saved, node.saved, strict=True):
        if (entry is None and name in op.cache) or entry.__class__ is Packed:
            return NotImplemented  # it was not the `batch_kernel` that ran
        values.append(entry[0] if entry.__class__ is tuple else entry)
    found = behind(level, values)
    if found is None:
        return NotImplemented
    _check_versions(node)
    found[0].append(tuple([e is not None for e in node.edges]))
    if node.outputs[0][2] is BatchedArray:  # the `batch_kernel` made the cache; else it is that of one call
        found[1].extend(_cached(op))
    arrays = run_on_arrays(_on_arrays, op, level, found)
    if arrays is NotImplemented:
        return NotImplemented
    results: list[Tensor | None] = []
    for a in arrays if arrays.__class__ is tuple else (arrays,):
        results.append(None if a is None else share(BatchedArray(level, as_value(a), True), None))
    return results


def _on_arrays(op: Op, level: Batch, found: tuple) -> Any:
    """The gradients as arrays, by the row's `batch_backward`."""
    return on_arrays(op.batch_backward, _backward_kernel(op, found[2]), level, found, _names(op))


@functools.cache
def _names(op: Op) -> tuple[str, ...]:
    """The names of what a `batch_backward` may use of a node, in the order of the values."""
    return (*op.kept, "g", *op.saved, "needs")


@functools.cache
def _cached(op: Op) -> tuple[int, ...]:
    """The places of the row's `cache` among these names."""
    return tuple(_names(op).index(name) for name in op.cache)


@functools.cache
def _backward_kernel(op: Op, storage: Any) -> Any:
    """The row's `backward_kernel` for arrays of a class, or what the device has in its place; None if it has none."""
    return in_turn(f"{op.name}.backward", asked_backward(op, storage)) if op.backward_kernel else None


def _check_versions(node: Any) -> None:
    for entry in node.saved:
        if entry.__class__ is tuple:
            array, storage, version = entry
            if storage.version != version:
                raise_modified(node, array, storage, version, None)


def _broadcasts(node: Any, g: Tensor) -> bool:
    """Whether what the node saved has other shapes than the gradient."""
    shape = g._array.shape
    return any([entry.__class__ is tuple and entry[0].shape != shape for entry in node.saved])


def _on_values(level: Batch, node: Any, g: Tensor) -> tuple[int, Tensor, Any] | None:
    """How many dimensions a sample of the output has, its gradient's value, and the node over values; None if it has
    none."""
    op, rank = node.op, len(node.outputs[0][0])
    along = op.kind == "same shape"
    if node.saved is FREED:
        raise_freed()
    if along and not rank:
        return None
    _check_versions(node)
    saved: list[Any] = []
    for entry in node.saved:
        if entry.__class__ is tuple:
            array, storage, version = entry
            if array.__class__ is BatchedArray and array.level is level:
                value = _value(level, array, rank, along)
                storage = value._storage
                entry = value._array, storage, storage.version
            elif along:
                value = share(array, storage).expand(level.size, *array.shape)
                entry = value._array, storage, version
        elif entry.__class__ is Packed:
            return None
        saved.append(entry)
    array = g._array
    if array.__class__ is BatchedArray and array.level is level:
        g = _value(level, array, rank, along)
    elif along:
        g = g.expand(level.size, *array.shape)
    made = object.__new__(Node)
    made.op, made.edges, made.saved, made.hooks = op, node.edges, tuple(saved), None
    made.args = tuple([shifted(v) if n in DIMS else v for n, v in zip(op.kept, node.args)]) if along else node.args
    shape, dtype, _ = node.outputs[0]
    several = g._array.ndim > rank or any(s[0].ndim > rank for s in saved if s.__class__ is tuple)
    made.outputs = (((level.size, *shape) if several else shape, dtype, g._array.__class__),)
    return rank, g, made


def _value(level: Batch, array: BatchedArray, rank: int, along: bool) -> Tensor:
    if along and not array.mapped:
        return array.value.expand(level.size, *array.shape)
    return array.value if array.ndim == rank or not array.mapped else level.aligned(array, rank)


def _sample(level: Batch, value: Tensor, rank: int) -> Tensor:
    """The tensor of the level for a result: operands with a batch have one dimension more than a sample."""
    return share(BatchedArray(level, value, value._array.ndim > rank), None)


Batch.gradients = gradients  # type: ignore[assignment]
