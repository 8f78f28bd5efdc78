"""Joining several tensors into one: `cat`, `stack` and their relatives."""

from __future__ import annotations

import itertools

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import alias, composite, op
from tensorgrad.errors import wrap_dim
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor


def one_dtype(name: str, arrays: list) -> list:
    """Casts the arrays to the dtype to which all of them promote.

    Raises: RuntimeError if they are not on the same device.
    """
    first = arrays[0]
    target = first.dtype
    for x in arrays:
        if x.__class__ is not first.__class__:
            found = " and ".join(sorted({str(STORAGES[x.__class__].device_of(x)) for x in arrays}, reverse=True))
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {found}! "
                f"(when checking arguments of {name}: shapes {[list(x.shape) for x in arrays]})"
            )
        if x.dtype != target:
            target = dtypes.promote_types(dtypes.from_numpy_dtype(target), dtypes.from_numpy_dtype(x.dtype)).numpy
    return [x if x.dtype == target else x.astype(target) for x in arrays]


# --- concatenation ---------------------------------------------------------------------------------------------------


def _prepare_cat(arrays, dim):
    if not arrays:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    first = arrays[0]
    shape = first.shape
    if shape and shape != (0,):
        at, dtype, kind = wrap_dim(dim, len(shape)), first.dtype, first.__class__
        before, after = shape[:at], shape[at + 1 :]
        for x in arrays:
            own = x.shape
            if own != shape and (len(own) != len(shape) or own[:at] != before or own[at + 1 :] != after):
                break
            if x.dtype is not dtype or x.__class__ is not kind:
                break
        else:
            return arrays, at
    shape = None
    for i, x in enumerate(arrays):
        if not x.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
        if x.shape != (0,) and shape is None:
            shape = x.shape
    if shape is None:  # only legacy empty tensors of shape (0,), for which any `dim` is valid
        return one_dtype("cat", arrays), 0
    dim = wrap_dim(dim, len(shape))
    arrays = one_dtype("cat", arrays)
    kept = []
    for i, x in enumerate(arrays):
        if x.shape == (0,) and shape != (0,):
            continue  # a legacy empty tensor of shape (0,) fits every shape
        if x.ndim != len(shape):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(shape)} and {x.ndim}")
        if x.shape[:dim] != shape[:dim] or x.shape[dim + 1 :] != shape[dim + 1 :]:
            at = next(d for d in range(len(shape)) if d != dim and x.shape[d] != shape[d])
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. Expected size {shape[at]} but got size "
                f"{x.shape[at]} for tensor number {i} in the list."
            )
        kept.append(x)
    return kept, dim


def _cat_shape(arrays, dim):
    shape = arrays[0].shape
    return (*shape[:dim], sum(x.shape[dim] for x in arrays), *shape[dim + 1 :]), arrays[0].dtype


def _parts(g, tensors_shape, dim):
    """Returns the gradients of the joined tensors: each one's slice of `g`."""
    from tensorgrad.ops.shape import window

    sizes = [0 if shape == (0,) and g.ndim > 1 else shape[dim] for shape in tensors_shape]
    ends = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    return [
        g.new_zeros(shape) if not n and shape == (0,) else window(g, dim, start, stop)
        for (start, stop), n, shape in zip(ends, sizes, tensors_shape, strict=True)
    ]


_cat = op("cat(tensors: tensors, dim: int = 0)", "join.cat", batch="leading", linear="tensors", prepare=_prepare_cat,
          shape=_cat_shape,
          tensors=lambda g, tensors_shape, dim: _parts(g, tensors_shape, dim), where=())  # fmt: skip


@composite("function")
def cat(tensors, dim: int = 0, *, out=None) -> Tensor:
    """Concatenates tensors along `dim`, in the dtype to which they promote.

    Args:
        tensors: a list or tuple of tensors, of the same shape but for `dim`.
        dim: the dimension whose sizes are added.

    Raises:
        ValueError: If the list is empty.
        RuntimeError: If the shapes differ in another dimension.

    >>> torch.cat([torch.zeros(1, 2), torch.ones(1, 2)])
    tensor([[0., 0.],
            [1., 1.]])
    """
    return _cat(_listed(tensors), dim, out=out)


def _listed(tensors):
    return tensors if tensors.__class__ is list or isinstance(tensors, Tensor) or not tensors else list(tensors)


alias("concat", cat, "function")
alias("concatenate", cat, "function")

# --- stacking --------------------------------------------------------------------------------------------------------


def _prepare_stack(arrays, dim):
    if not arrays:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = arrays[0].shape
    dim = wrap_dim(dim, len(shape) + 1)
    first = arrays[0]
    if all(x.shape == shape and x.dtype is first.dtype and x.__class__ is first.__class__ for x in arrays):
        return arrays, dim
    for i, x in enumerate(arrays):
        if x.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(x.shape)} at "
                f"entry {i}"
            )
    return one_dtype("stack", arrays), dim


def _stack_shape(arrays, dim):
    shape = arrays[0].shape
    return (*shape[:dim], len(arrays), *shape[dim:]), arrays[0].dtype


_stack = op("stack(tensors: tensors, dim: int = 0)", "join.stack", batch="leading", linear="tensors",
            prepare=_prepare_stack,
            shape=_stack_shape,
            tensors=lambda g, dim: g.unbind(dim), where=())  # fmt: skip


@composite("function")
def stack(tensors, dim: int = 0, *, out=None) -> Tensor:
    """Stacks tensors of the same shape along a new dimension.

    Args:
        tensors: a list or tuple of n tensors.
        dim: where the new dimension, of size n, is in the result.

    Raises:
        RuntimeError: If the list is empty or the shapes differ.

    >>> torch.stack([torch.tensor([1, 2]), torch.tensor([3, 4])], 1)
    tensor([[1, 3],
            [2, 4]])
    """
    return _stack(_listed(tensors), dim, out=out)


# --- by direction ----------------------------------------------------------------------------------------------------


def _at_least(x: Tensor, ndim: int) -> Tensor:
    """Returns a view of `x` with at least `ndim` dimensions, adding new ones where NumPy's `atleast_*d` do."""
    have = x._array.ndim
    if have >= ndim:
        return x
    shape = x._array.shape
    if ndim == 2 and have:
        return x.unsqueeze(0)
    if ndim == 3 and have:
        return x.unsqueeze(-1) if have == 2 else x.unsqueeze(0).unsqueeze(-1)
    return x.reshape((1,) * (ndim - have) + shape)


def _atleast(name: str, ndim: int) -> None:
    def function(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
            tensors = tuple(tensors[0])
        elif len(tensors) == 1:
            return _at_least(tensors[0], ndim)
        return tuple(_at_least(x, ndim) for x in tensors)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Views of the tensor (or tensors, as a tuple) with at least {ndim} dimension{'s' * (ndim > 1)}."
    composite("function")(function)


for _ndim in (1, 2, 3):
    _atleast(f"atleast_{_ndim}d", _ndim)


def _all(name: str, tensors, ndim: int) -> list[Tensor]:
    if not isinstance(tensors, tuple | list):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return [_at_least(x, ndim) for x in tensors]


@composite("function")
def hstack(tensors, *, out=None) -> Tensor:
    """Joins tensors along dimension 1 (vectors: along dimension 0).

    >>> torch.hstack([torch.tensor([1, 2]), torch.tensor([3])])
    tensor([1, 2, 3])
    """
    tensors = _all("hstack", tensors, 1)
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1, out=out)


@composite("function")
def vstack(tensors, *, out=None) -> Tensor:
    """Joins tensors along dimension 0; vectors count as rows.

    >>> torch.vstack([torch.tensor([1, 2]), torch.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return cat(_all("vstack", tensors, 2), 0, out=out)


alias("row_stack", vstack, "function")


@composite("function")
def dstack(tensors, *, out=None) -> Tensor:
    """Joins tensors along the third dimension.

    >>> torch.dstack([torch.tensor([1, 2]), torch.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return cat(_all("dstack", tensors, 3), 2, out=out)


@composite("function")
def column_stack(tensors, *, out=None) -> Tensor:
    """Joins tensors along dimension 1; vectors count as columns.

    >>> torch.column_stack([torch.tensor([1, 2]), torch.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    tensors = _all("column_stack", tensors, 0)
    return hstack([x if x.ndim > 1 else x.reshape(x.numel(), 1) for x in tensors], out=out)


# --- along the diagonal ----------------------------------------------------------------------------------------------


def _blocks(g, tensors_shape):
    from tensorgrad.ops.shape import slice_at

    row = column = 0
    parts = []
    for m, n in tensors_shape:
        parts.append(slice_at(g, (slice(row, row + m), slice(column, column + n))))
        row, column = row + m, column + n
    return parts


_block_diag = op("block_diag(tensors: tensors)", "join.block_diag", linear="tensors", where=(),
                 prepare=lambda arrays: (one_dtype("block_diag", arrays),),
                 shape=lambda arrays: ((sum(x.shape[0] for x in arrays), sum(x.shape[1] for x in arrays)),
                                       arrays[0].dtype),
                 tensors=lambda g, tensors_shape: _blocks(g, tensors_shape))  # fmt: skip


@composite("function")
def block_diag(*tensors) -> Tensor:
    """Builds a block-diagonal matrix from matrices; vectors count as rows.

    >>> torch.block_diag(torch.tensor([[1]]), torch.tensor([2, 3]))
    tensor([[1, 0, 0],
            [0, 2, 3]])
    """
    for i, x in enumerate(tensors):
        if x._array.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x._array.ndim} "
                "dimensions"
            )
    if not tensors:
        from tensorgrad.ops.create import empty

        return empty(1, 0)
    return _block_diag([_at_least(x, 2) for x in tensors])
