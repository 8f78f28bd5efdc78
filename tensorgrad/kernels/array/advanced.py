"""Advanced indexing over plain arrays: `x[i, :, j]` with index arrays and masks.

`indices` are integer or bool arrays, and `pattern` gives their positions: for each leading dimension the number of its
index array (a mask takes several dimensions), or None if the dimension is kept whole.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad.kernels.array import index as scattering
from tensorgrad.rows.kernel_tables import run_compiled
from tensorgrad.rows.strides import order_of_operands


def assembled(indices, pattern):
    """Returns the tuple that NumPy indexes by."""
    return tuple([slice(None) if k is None else indices[k] for k in pattern])


def index(xp, x, indices, pattern):
    """Returns the elements at the index arrays, broadcast together.

    Raises: IndexError if an index is outside its dimension, or if index arrays do not broadcast.
    """
    try:
        if pattern == (0,) and xp is np and x.flags.c_contiguous and indices[0].dtype.kind != "b":
            return x.take(indices[0], 0)
        if xp is not np:
            _look_later(xp, x.shape, indices, pattern)
        found = x[assembled(indices, pattern)]
    except (IndexError, ValueError):
        check_indices(x.shape, indices, pattern)
        raise  # not about the indices: raised by a signal handler, which may run at any moment
    if not x.flags.c_contiguous:
        return found  # in what order is said by the row (`order_in_memory`)
    if not found.flags.c_contiguous:
        return xp.array(found, order="C")
    return found.reshape(-1).reshape(found.shape) if 1 in found.shape else found  # NumPy gives sizes of 1 any strides


def _look_later(xp, shape, indices, pattern):
    """Lets the device check the indices, if it does so itself."""
    dim = 0
    for k in pattern:
        if k is not None and indices[k].dtype.kind == "b":
            dim += indices[k].ndim
            continue
        if k is not None:
            scattering.checks_itself(xp, indices[k], -shape[dim], shape[dim], dim)
        dim += 1


def index_grad(xp, g, indices, pattern, shape):
    """Returns zeros of `shape` with the gradients `g` added where `index` read."""
    if not g.size:
        return xp.zeros(shape, g.dtype)
    first = indices[0]
    if len(indices) == 1 and first.dtype.kind == "b":  # no element is read twice
        out = xp.zeros(shape, g.dtype)
        out[assembled(indices, pattern)] = g
        return out
    if pattern == (0,) and len(shape) > 1:
        rows = first.reshape(-1)
        rows = xp.where(rows < 0, rows + shape[0], rows)
        width = math.prod(shape[1:])
        g = g.reshape(rows.size, width)
        table = NotImplemented
        if xp is np:  # the same sums, as whole rows
            table = run_compiled("embedding_grad", g.size, g, rows, shape[0], -1, False)
        if table is NotImplemented:
            table = scattering.embedding_grad(xp, xp.ascontiguousarray(g), rows, shape[0])
        return table.reshape(shape)
    listed = [None if k is None else indices[k] for k in pattern]
    return scattering.index_put(xp, xp.zeros(shape, g.dtype), listed, g, True)


def index_put(xp, x, indices, values, pattern, accumulate):
    """Returns a copy of `x` with `values` written (or added) where `index` would read."""
    check_values(x.shape, indices, values, pattern)
    listed = [None if k is None else indices[k] for k in pattern]
    return scattering.index_put(xp, x, listed, values, accumulate)


def _dimensions(shape, indices, pattern) -> tuple[list, list, int]:
    """Which dimensions are kept whole, the sizes of the index arrays, and before which of the kept dimensions those of
    the index arrays go: adjacent index arrays leave their result in place, others put it first."""
    kept, sizes, places, dim = [], [], [], 0
    for place, k in enumerate(pattern):
        if k is None:
            kept.append(dim)
            dim += 1
            continue
        places.append(place)
        array = indices[k]
        if array.dtype.kind == "b":
            sizes.append((int(array.sum()),))
            dim += array.ndim
        else:
            sizes.append(array.shape)
            dim += 1
    first = places[0] if places[-1] - places[0] == len(places) - 1 else 0
    return [*kept, *range(dim, len(shape))], sizes, first


def order_in_memory(x, indices, pattern):
    """The dimensions of `index`'s result, outermost in memory first; None if that is their order.

    PyTorch's rule: it is that of a pointwise op on x, which stands still along the dimensions of the index arrays, and
    on the index arrays, which move along these alone.
    """
    shape = shape_of(x.shape, indices, pattern)
    kept, sizes, first = _dimensions(x.shape, indices, pattern)
    found = len(shape) - len(kept)
    steps = [x.strides[d] for d in kept]
    operands = [(shape, (*steps[:first], *(0,) * found, *steps[first:]), x.itemsize)]
    for i, size in zip([indices[k] for k in pattern if k is not None], sizes, strict=True):
        lead = (0,) * (found - len(size))
        steps = list(i.strides) if i.dtype.kind != "b" else [i.itemsize]
        around = 0 if lead else size[0] * steps[0], steps[-1]  # where x has dimensions of one element, these decide
        ones = (1,) * first, (1,) * (len(kept) - first)
        placed = [(n,) * len(one) for n, one in zip(around, ones, strict=True)]
        operands.append(((*ones[0], *lead, *size, *ones[1]), (*placed[0], *lead, *steps, *placed[1]), i.itemsize))
    return order_of_operands(shape, x.itemsize, *operands)


def shape_of(shape, indices, pattern):
    """Returns the shape of `index`'s result.

    Raises: IndexError if index arrays do not broadcast.
    """
    kept, sizes, first = _dimensions(shape, indices, pattern)
    try:
        broadcast = np.broadcast_shapes(*sizes)
    except ValueError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{', '.join(str(list(s)) for s in sizes)}"
        ) from None
    kept = [shape[d] for d in kept]
    return (*kept[:first], *broadcast, *kept[first:])


def check_values(shape, indices, values, pattern):
    """Raises: RuntimeError unless `values` broadcast to the written elements; IndexError if indices are invalid."""
    if not values.ndim or (values.ndim == 1 and values.shape[0] == 1):
        return
    wanted = shape_of(shape, indices, pattern)
    lead = len(wanted) - values.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(values.shape, wanted[lead:])):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
            f"shape {list(wanted)}"
        )


def check_indices(shape, indices, pattern):
    """Raises: IndexError if indices are outside an array of `shape`, or do not broadcast together."""
    dim = 0
    for k in pattern:
        if k is None:
            dim += 1
            continue
        array = indices[k]
        if array.dtype.kind == "b":
            dim += array.ndim
            continue
        if array.size:
            low, high, size = int(array.min()), int(array.max()), shape[dim]
            if low < -size or high >= size:
                if not size:
                    raise IndexError("index is out of bounds for dimension with size 0")
                wrong = high if high >= size else low
                raise IndexError(f"index {wrong} is out of bounds for dimension {k} with size {size}")
        dim += 1
    shape_of(shape, indices, pattern)


def nonzero(xp, x):
    """The positions of the nonzero elements, one per row; the coordinates along a dimension lie side by side."""
    if not x.ndim:
        return xp.zeros((int(bool(x)), 0), np.int64)
    found = xp.nonzero(x)
    return xp.stack(found).T if len(found) > 1 else found[0].reshape(-1, 1)
