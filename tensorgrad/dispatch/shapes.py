"""Shapes without data: how the kinds of op run on the meta device.

A pointwise op broadcasts, a reduction drops dimensions, a view rearranges strides: one rule per kind. The dtype is
what the array kernel gives for arrays of a single element. Other ops state their `shape=` in the row.
"""

from __future__ import annotations

import numpy as np

from tensorgrad.rows.kernel_tables import array_function, array_kernel
from tensorgrad.rows.strides import in_order_of
from tensorgrad.storage.meta import MetaArray


def rule_for(op):
    """A kernel for meta arrays; None if neither the op nor its kind has a rule."""
    if op.shape is not None:
        shape = op.shape if callable(op.shape) else array_function(op.shape)
        return lambda *values: _made(shape(*values), values)
    if op.kind == "view":
        return lambda x, *params: MetaArray(_host(op)(x.phantom, *params))
    if op.kernel is None:
        return None
    if op.kind == "sample":  # without drawing one
        return lambda x, *rest: _broadcast((x, *rest), x.dtype)
    if op.kind == "pointwise":
        return lambda *values: _pointwise(op, values)
    if op.kind == "reduction":
        return lambda *values: _reduction(op, values)
    if op.kind in ("cast", "same shape"):
        return lambda x, *params: MetaArray.empty(x.shape, _host(op)(_one(x), *params).dtype)
    return None


def meta_kernel(op, storage):
    """The rule of an op as its kernel on meta; None elsewhere, and for an op without a rule."""
    return rule_for(op) if storage.device_type == "meta" else None


def _host(op):
    return array_kernel(op.kernel, np)


def _one(value):
    """An array with one element in place of a meta array, for a NumPy kernel."""
    return np.ones((1,) * value.ndim, value.dtype) if value.__class__ is MetaArray else value


def _pointwise(op, values):
    with np.errstate(all="ignore"):
        dtype = np.asarray(_host(op)(*[_one(v) for v in values])).dtype
    return in_order_of(values, _broadcast(values, dtype))


def _broadcast(values, dtype):
    shape = np.broadcast_shapes(*(v.shape for v in values if v.__class__ is MetaArray))
    return MetaArray.empty(shape, dtype)


def _reduction(op, values):
    x = values[0]
    named = dict(zip((p.name for p in op.params), values, strict=True))
    dims = named["dim"]
    dims = range(x.ndim) if dims is None else (dims,) if isinstance(dims, int) else dims
    dims = {d % x.ndim for d in dims} if x.ndim else set()
    keepdim = named.get("keepdim", False)
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims)
    with np.errstate(all="ignore"):
        results = _host(op)(*[_one(v) for v in values])
    if isinstance(results, tuple):
        return tuple(MetaArray.empty(shape, np.asarray(r).dtype) for r in results)
    return MetaArray.empty(shape, np.asarray(results).dtype)


def _made(answer, values):
    """Meta arrays from what a row's `shape=` returned: a shape, (shape, dtype), or a list of either; or the array."""
    if isinstance(answer, list):
        return tuple(_made(a, values) for a in answer)
    if answer.__class__ is MetaArray:
        return answer
    if len(answer) == 2 and isinstance(answer[0], tuple):
        shape, dtype = answer
        return MetaArray.empty(tuple(shape), np.dtype(dtype))
    first = values[0][0] if isinstance(values[0], list) else values[0]
    return MetaArray.empty(tuple(answer), first.dtype)
