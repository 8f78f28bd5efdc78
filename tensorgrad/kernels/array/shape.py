"""Views of plain arrays: the same memory with another shape and other strides. None of these copies.

Strides are PyTorch's, even where a dimension has size 1 (NumPy gives a new axis stride 0, PyTorch the stride that it
would have if it were longer).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorgrad.storage.cpu import Window


def restrided(xp, x, shape, strides):
    """Views the array's memory with another shape and strides (bytes), from the same first element.

    The caller guarantees that these stay inside the memory. The result is writable if `x` is.
    """
    if xp is np:
        if x.size:
            if x.flags.c_contiguous:
                return np.ndarray(shape, x.dtype, x, 0, strides)  # eight times as fast as as_strided
            if x.flags.f_contiguous:
                return np.ndarray(shape, x.dtype, x.T, 0, strides)
        return _shown(x, shape, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def at_offset(xp, x, shape, strides, offset):
    """Views the memory that contains `x`, `offset` bytes after its first element; the view may extend beyond `x`."""
    if xp is not np:
        return xp.ndarray(shape, x.dtype, x.data + offset, strides)
    return _shown(x, shape, strides, offset)


def _shown(x, shape, strides, offset=0):
    """Any window of the memory that contains `x`. (NumPy's `as_strided` does not know float8.)"""
    return np.asarray(Window(x, x.ctypes.data + offset, shape, strides, x.dtype)).view(x.dtype)


def strided_nothing(shape, strides, dtype):
    """Makes an array without elements that keeps its strides (in elements)."""
    blank = np.empty(1, f"V{dtype.itemsize}")  # NumPy's as_strided does not know all of ml_dtypes
    return as_strided(blank, shape, [s * dtype.itemsize for s in strides]).view(dtype)


def dense_strides(shape, itemsize):
    """Returns the strides (bytes) of a C-contiguous array; dimensions of size 0 count as 1, as in PyTorch."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n or 1
    return tuple(reversed(strides))


def expand(xp, x, size):
    """Repeats dimensions of size 1 without copying (stride 0), and adds new ones in front.

    Raises: RuntimeError if a size differs from that of a dimension that is not 1.
    """
    old, strides = x.shape, x.strides
    lead = len(size) - len(old)
    found = [0] * len(size)
    for i in range(len(size) - 1, -1, -1):
        n = size[i]
        if i >= lead:
            m = old[i - lead]
            if m == n:
                found[i] = strides[i - lead]
            elif m != 1:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) must match the existing size ({m}) at non-singleton "
                    f"dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: {list(old)}"
                )
        elif n == 1 and old:  # a new dimension of size 1 gets the stride it would have in a dense array
            found[i] = found[i + 1] * size[i + 1]
    return restrided(xp, x, size, tuple(found))


def view(xp, x, size):
    """Views the same elements with another shape.

    Raises: RuntimeError if that is not possible without copying.
    """
    if x.flags.c_contiguous and (1 not in x.shape or (x.size and x.strides[-1] == x.itemsize and size != x.shape)):
        return x.reshape(size)
    strides = view_strides(x.shape, x.strides, size, x.itemsize)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            f"contiguous subspaces). Use .reshape(...) instead. (view of {list(x.shape)} with strides "
            f"{[s // x.itemsize for s in x.strides]} as {list(size)})"
        )
    if xp is np:
        made = x.reshape(size)  # copies if it must, and then the strides differ; several times as fast
        if made.strides == strides:
            return made
    return restrided(xp, x, size, strides)


@lru_cache(maxsize=1024)
def view_strides(shape, strides, size, itemsize):
    """Returns the strides with which an array of `shape` and `strides` can be viewed as `size`; None if there are none.

    Dimensions that are contiguous with each other form a block; every block must be a product of adjacent sizes of the
    new shape.
    """
    if not shape:
        return (itemsize,) * len(size)
    if 0 in shape:
        return strides if size == shape else dense_strides(size, itemsize)
    found = [0] * len(size)
    i = len(size) - 1
    step, block, filled = strides[-1], 1, 1
    for d in range(len(shape) - 1, -1, -1):
        block *= shape[d]
        if d == 0 or (shape[d - 1] != 1 and strides[d - 1] != block * step):  # the block ends here
            while i >= 0 and (filled < block or size[i] == 1):
                found[i] = filled * step
                filled *= size[i]
                i -= 1
            if filled != block:
                return None
            if d:
                step, block, filled = strides[d - 1], 1, 1
    return tuple(found) if i == -1 else None


def unsqueeze(xp, x, dim):
    """Adds a new dimension of size 1."""
    shape, ndim = x.shape, x.ndim
    size = (*shape[:dim], 1, *shape[dim:])
    if 1 not in shape and x.size and (dim < ndim or not ndim or x.strides[-1] == x.itemsize):
        return x.reshape(size)
    strides = x.strides
    step = shape[dim] * strides[dim] if dim < ndim else x.itemsize
    return restrided(xp, x, size, (*strides[:dim], step, *strides[dim:]))


def squeeze(xp, x, dims):
    """Removes those of the dimensions `dims` that have size 1."""
    shape = x.shape
    return x.squeeze(tuple([d for d in dims if shape[d] == 1])) if shape else x.reshape(())


def transpose(xp, x, dim0, dim1):
    """Swaps two dimensions."""
    return x.swapaxes(dim0, dim1) if x.ndim else x.reshape(())


def transposed(xp, x):
    """Transposes a matrix; an array of fewer dimensions is unchanged."""
    return x.T


def permute(xp, x, dims):
    """Reorders the dimensions."""
    return x.transpose(dims)


def alias(xp, x):
    """Returns the same array as a new object."""
    return x[...]


def at(xp, x, index):
    """Basic indexing by a tuple of integers, slices, None and at most one Ellipsis.

    A tuple with an integer must have the Ellipsis, so that NumPy gives a view and not a scalar.
    Raises: IndexError if an integer is outside its dimension, or if there are too many indices.
    """
    try:
        found = x[index]
    except IndexError:
        raise_index_error(x.shape, index)
    if found.size or xp is not np:
        return found if None not in index else _with_new_axes(xp, x, found, index)
    return _nothing_at(x, index)


def _nothing_at(x, index):
    """Returns `x[index]` where that has no element, with PyTorch's strides and place in memory.

    (NumPy's would begin where the dimension does and lose the step; `resize_` and `as_strided` go on from there.)
    """
    taken = sum(1 for i in index if i is not None and i is not Ellipsis)
    old = strides_of(x)
    shape, strides, offset, dim = [], [], 0, 0
    for i in index if Ellipsis in index else (*index, Ellipsis):
        if i is None:
            shape.append(1)
            strides.append(x.shape[dim] * old[dim] if dim < x.ndim else x.itemsize)
        elif i is Ellipsis:
            rest = x.ndim - taken
            shape += x.shape[dim : dim + rest]
            strides += old[dim : dim + rest]
            dim += rest
        elif i.__class__ is slice:
            start, stop, step = i.indices(x.shape[dim])
            shape.append(len(range(start, stop, step)))
            strides.append(old[dim] * step)
            offset += start * old[dim]
            dim += 1
        else:
            offset += (i + x.shape[dim] if i < 0 else i) * old[dim]
            dim += 1
    return _shown(x, tuple(shape), tuple(strides), offset)


def strides_of(x):
    """The strides (bytes) of an array; of one without elements and strides, which NumPy may drop, row-major ones."""
    return x.strides if x.size or any(x.strides) else dense_strides(x.shape, x.itemsize)


def _with_new_axes(xp, x, found, index):
    """Returns `found = x[index]` with PyTorch's strides for the new axes."""
    taken = sum(1 for i in index if i is not None and i is not Ellipsis)
    strides, dim = [], 0
    for i in index if Ellipsis in index else (*index, Ellipsis):
        if i is None:
            strides.append(x.shape[dim] * x.strides[dim] if dim < x.ndim else x.itemsize)
        elif i is Ellipsis:
            rest = x.ndim - taken
            strides += found.strides[len(strides) : len(strides) + rest]
            dim += rest
        else:
            dim += 1
            if i.__class__ is slice:
                strides.append(found.strides[len(strides)])
    wanted = tuple(strides)
    return found if wanted == found.strides else restrided(xp, found, found.shape, wanted)


def raise_index_error(shape, index):
    """Raises the IndexError for basic indexing of an array of `shape` by `index`."""
    wanted = [i for i in index if i is not None and i is not Ellipsis]
    if len(wanted) > len(shape):
        if not shape:
            if wanted[0].__class__ is slice:
                raise IndexError("slice() cannot be applied to a 0-dim tensor.")
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                "convert a 0-dim tensor to a number"
            )
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    dim = 0
    for i in index:
        if i is None:
            continue
        if i is Ellipsis:
            dim += len(shape) - len(wanted)
            continue
        if i.__class__ is not slice and not -shape[dim] <= i < shape[dim]:
            raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {shape[dim]}")
        dim += 1
    raise IndexError(f"invalid index {index} for a tensor of shape {list(shape)}")


def diagonal(xp, x, offset, dim1, dim2):
    """The elements whose indices in two dimensions are equal (up to `offset`), as the last dimension of a view."""
    below, right = max(-offset, 0), max(offset, 0)
    n = max(min(x.shape[dim1] - below, x.shape[dim2] - right), 0)
    if n and offset:
        first = [slice(None)] * x.ndim
        first[dim1], first[dim2] = slice(below, None), slice(right, None)
        x = x[tuple(first)]
    others = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    shape = (*(x.shape[d] for d in others), n)
    strides = (*(x.strides[d] for d in others), x.strides[dim1] + x.strides[dim2])
    return restrided(xp, x, shape, strides)


def unfold(xp, x, dim, size, step):
    """Views all windows of `size` elements along `dim`, `step` apart, as a new last dimension."""
    if not x.ndim:
        return restrided(xp, x, (size,), (x.itemsize,))
    shape, strides = x.shape, x.strides
    count = (shape[dim] - size) // step + 1
    return restrided(
        xp,
        x,
        (*shape[:dim], count, *shape[dim + 1 :], size),
        (*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim]),
    )


def strided_view(xp, x, size, stride, delta, geometry):
    """Views any shape and strides (in elements), starting `delta` elements after the first one of `x`."""
    b = x.itemsize
    return at_offset(xp, x, size, tuple([s * b for s in stride]), delta * b)


# --- derivatives of views ------------------------------------------------------------------------------------------


def place(xp, g, shape, view_kernel, args):
    """Writes `g` into zeros of `shape` at the elements that a view without overlap shows."""
    out = xp.zeros(shape, g.dtype)
    view_kernel(out, *args)[...] = g
    return out


_LONG_STEP = 8  # from which adding whole parts of windows beats adding one element of all of them at a time


def unfold_grad(xp, g, shape, dim, size, step):
    """Sums, for every element of `shape`, the gradients `g` of the windows that contain it."""
    if not shape:
        return g.reshape(()) if size else xp.zeros((), g.dtype)
    out = xp.zeros(shape, g.dtype)
    count = g.shape[dim]
    lead = (slice(None),) * dim
    if step >= size:
        unfold(xp, out, dim, size, step)[...] = g
    elif step >= _LONG_STEP and size <= step * count:
        for first in range(0, size, step):  # parts of the windows that are no longer than a step do not overlap
            part = g[..., first : first + step]
            width = part.shape[-1]
            target = unfold(xp, out[(*lead, slice(first, first + step * (count - 1) + width))], dim, width, step)
            target += part
    elif size <= count:
        for k in range(size):  # the k-th elements of all windows are distinct
            out[(*lead, slice(k, k + step * (count - 1) + 1, step))] += g[..., k]
    else:
        for i in range(count):
            window = out[(*lead, slice(i * step, i * step + size))]
            window += xp.moveaxis(g[(*lead, i)], -1, dim)
    return out


def _positions(xp, shape, strides, first):
    """Returns the position in memory of every element of a strided array."""
    where = xp.asarray(first)
    for d, (n, s) in enumerate(zip(shape, strides)):
        steps = xp.arange(n) * s
        where = where + steps.reshape((n,) + (1,) * (len(shape) - 1 - d))
    return xp.broadcast_to(where, shape)


def _layouts(xp, size, stride, delta, geometry):
    """Returns positions of the viewed and of the original array in one memory, and its number of elements."""
    shape, strides = geometry
    viewed = _positions(xp, size, stride, delta)
    original = _positions(xp, shape, strides, 0)
    parts = [p for p in (viewed, original) if p.size]
    low = min((int(p.min()) for p in parts), default=0)
    high = max((int(p.max()) for p in parts), default=-1)
    return viewed - low, original - low, high - low + 1


def strided_view_grad(xp, g, size, stride, delta, geometry):
    """The gradient of `strided_view`: elements seen several times sum all their gradients.

    If the original overlaps itself, each of its elements gets the mean, as in PyTorch.
    """
    viewed, original, n = _layouts(xp, size, stride, delta, geometry)
    memory = xp.zeros(n, g.dtype)
    xp.add.at(memory, viewed.reshape(-1), xp.ascontiguousarray(g).reshape(-1))
    found = memory[original]
    counts = _counts(xp, original, n, geometry)
    if counts is not None:
        found = found / counts.astype(g.real.dtype)
    return xp.asarray(found, dtype=g.dtype)


def _counts(xp, original, n, geometry):
    """Returns how many elements of the original share each one's memory; None if each has its own."""
    if not any(s == 0 and m > 1 for m, s in zip(*geometry)):
        return None
    return xp.bincount(original.reshape(-1), minlength=n)[original]


def strided_view_again(xp, gg, size, stride, delta, geometry):
    """Returns `strided_view` of `gg` laid out like the original, with 0 between its elements."""
    viewed, original, n = _layouts(xp, size, stride, delta, geometry)
    counts = _counts(xp, original, n, geometry)
    if counts is not None:
        gg = gg / counts.astype(gg.real.dtype)
    memory = xp.zeros(n, gg.dtype)
    xp.add.at(memory, original.reshape(-1), xp.ascontiguousarray(gg).reshape(-1))
    return xp.asarray(memory[viewed])
