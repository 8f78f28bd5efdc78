"""Ops that return several views: `split`, `chunk`, `unbind` and their relatives.

All views made by one call share one node, whose backward joins their gradients: otherwise n parts would require n
gradients of the size of the whole. Like PyTorch, we forbid writing to such views in place while recording.
"""

from __future__ import annotations

import itertools
from sys import getrefcount
from typing import Any

import numpy as np

from tensorgrad.autograd.engine import ALONE_IN_SLOT
from tensorgrad.autograd.graph import Node, next_sequence_nr
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.refused_views import MULTI
from tensorgrad.autograd.views import edge_of
from tensorgrad.dispatch import generate
from tensorgrad.dispatch.kernel_errors import Composed
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import SHORT_MAX, SHORT_MIN, as_integer, no_dimensions, wrap_dim
from tensorgrad.ops.shape import also_one_by_one, ints, listed, select_at, slice_at, window
from tensorgrad.rows.op import row
from tensorgrad.rows.switches import LOCAL, SLOW
from tensorgrad.tensor import PLAIN, VIEW, Tensor, share


def _several(signature: str, step, windows, backward_name: str, formula):
    """Declares an op that makes several views.

    `windows(shape, dim, *args)` returns an index tuple for each view, which the row `step` (basic indexing) turns into
    the view; `formula` joins the gradients.
    """
    op = row(signature, None, kind="views", formulas={"input": formula}, backward_name=backward_name)
    generate.declare(op)
    names = [p.name for p in op.params[1:]]

    def plain(input: Tensor, *args) -> tuple[Tensor, ...]:
        array, storage = input._array, input._storage
        kernel = step.op.compiled.kernels[array.__class__]
        base, steps = (input, None) if input._view is None else input._view[:2]
        recorded = (MULTI if input._view is None or input._view[3] else input._view[3]) if GRAD.enabled else False
        indices = windows(array.shape, *args)
        parts = [kernel(array, index) for index in indices]
        edge = edge_of(input) if GRAD.enabled and input._requires_grad else None
        node = None
        if edge is not None:
            node = object.__new__(Node)
            node.op, node.edges, node.saved, node.hooks = op, (edge,), (), None
            values = {"input_shape": array.shape, **dict(zip(names, args, strict=True))}
            node.args = tuple(values[name] for name in op.kept)
            node.sequence_nr = next_sequence_nr()
            node.outputs = tuple((part.shape, part.dtype, part.__class__) for part in parts)
        results = []
        for nr, part in enumerate(parts):
            tensor = object.__new__(Tensor)
            tensor._array, tensor._memory, tensor._requires_grad = part, storage, VIEW
            tensor._grad = tensor._hooks = None
            tensor._edge = None if node is None else (node, nr)
            tensor._view = (base, (steps, step.op, (indices[nr],)), storage.version, recorded)
            results.append(tensor)
        return tuple(results)

    def call(input: Tensor, *args) -> tuple[Tensor, ...]:
        try:
            return generate.slowly(op, (input, *args)) if SLOW or input.__class__ not in PLAIN else plain(input, *args)
        except Composed:
            return tuple(step(input, index) for index in windows(input._array.shape, *args))

    op.compiled.plain, op.compiled.call = plain, call
    call.op = op  # type: ignore[attr-defined]
    return call


def _present(grads, shapes):
    """Returns the gradients of the parts, with zeros for missing ones."""
    some = next(g for g in grads if g is not None)
    return [some.new_zeros(shape) if g is None else g for g, shape in zip(grads, shapes, strict=False)]


def _count_in_list() -> int:
    values = [object()]
    return getrefcount(values[0])


_IN_LIST = _count_in_list()


def _alone(grads, nr: int) -> bool:
    """Whether only this list refers to a gradient, and only the gradient to what it is a view of."""
    references = getrefcount(grads[nr]) - (nr == 0)  # the generated function holds the first, too
    view = grads[nr]._view
    if references > _IN_LIST or (view is not None and getrefcount(view[0]) > _IN_LIST):
        return False
    return grads[nr]._memory is None or getrefcount(grads[nr]._memory) <= ALONE_IN_SLOT + (view is not None)


def _whole(grads, dim: int, stacked: bool) -> Tensor | None:
    """Returns what has these gradients as its parts along `dim`, if they lie so in memory that nothing else uses.

    Kernels whose inputs are parts of one array allocate their gradients so (`beside` in kernels/array/join.py).
    """
    if GRAD.enabled or LOCAL.transforms:
        return None
    if any(g.__class__ is not Tensor or g._array.__class__ is not np.ndarray for g in grads):
        return None
    from tensorgrad.kernels.array.join import whole_of

    array = whole_of([g._array for g in grads], dim, stacked)
    return share(array, None) if array is not None and all(_alone(grads, nr) for nr in range(len(grads))) else None


def _join_slices(grads, input_shape, dim):
    from tensorgrad.ops.join import stack

    whole = _whole(grads, dim, True)
    if whole is not None:
        return whole
    shape = (*input_shape[:dim], *input_shape[dim + 1 :])
    return stack(_present(grads, itertools.repeat(shape, input_shape[dim])), dim)


def _join_parts(grads, input_shape, dim, sizes):
    from tensorgrad.ops.join import cat

    whole = _whole(grads, dim, False)
    if whole is not None:
        return whole
    shapes = [(*input_shape[:dim], n, *input_shape[dim + 1 :]) for n in sizes]
    return cat(_present(grads, shapes), dim)


def _slices(shape, dim):
    lead = (slice(None),) * dim
    return [(*lead, i, Ellipsis) for i in range(shape[dim])]


def _parts(shape, dim, sizes):
    lead = (slice(None),) * dim
    stops = list(itertools.accumulate(sizes, initial=0))
    return [(*lead, slice(a, b)) for a, b in itertools.pairwise(stops)]


_unbind = _several("unbind(input, dim: int)", select_at, _slices, "UnbindBackward0", _join_slices)
_split = _several("split(input, dim: int, sizes: any)", slice_at, _parts, "SplitBackward0", _join_parts)
_split_with_sizes = _several("split_with_sizes(input, dim: int, sizes: any)", slice_at, _parts,
                             "SplitWithSizesBackward0", _join_parts)  # fmt: skip


@composite()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Returns the slices along `dim` as a tuple of views without that dimension.

    >>> torch.tensor([[1, 2], [3, 4]]).unbind()
    (tensor([1, 2]), tensor([3, 4]))
    """
    if not input._array.ndim:
        raise no_dimensions(dim)
    return _unbind(input, wrap_dim(dim, input._array.ndim))


@composite()
def split(tensor: Tensor, split_size_or_sections, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits a tensor into views along `dim`: of one size (the last may be smaller), or of the sizes in a list.

    Args:
        tensor: what is split.
        split_size_or_sections: the size of a part, or a list of the sizes of all.
        dim: the dimension that is divided.

    Raises:
        RuntimeError: If the sizes do not fit the dimension.

    >>> torch.arange(5).split(2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if isinstance(split_size_or_sections, tuple | list):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    size, shape = split_size_or_sections, tensor._array.shape
    if size.__class__ is not int or not SHORT_MIN <= size <= SHORT_MAX:
        size = as_integer(size, "split_size")
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, len(shape))
    n = shape[dim]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if not size and n:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
    sizes = [size] * (n // size) if size else [0]
    if size and (n % size or not n):
        sizes.append(n % size)
    return _split(tensor, dim, tuple(sizes))


@composite("method", name="split")
def _split_method(self: Tensor, split_size, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits this tensor into views along `dim`: of one size (the last may be smaller), or of the sizes in a list.

    Args:
        split_size: the size of a part, or a list of the sizes of all.
        dim: the dimension that is divided.

    >>> torch.arange(3).split(split_size=2)
    (tensor([0, 1]), tensor([2]))
    """
    return split(self, split_size, dim)


@composite()
def split_with_sizes(input: Tensor, split_sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits a tensor into views along `dim` with the given sizes, which must sum to the size of the dimension.

    >>> torch.tensor([1, 2, 3]).split_with_sizes((1, 2))
    (tensor([1]), tensor([2, 3]))
    """
    shape, sizes = input._array.shape, listed(split_sizes, "split_sizes")
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, len(shape))
    if any(n < 0 for n in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}"
        )
    if sum(sizes) != shape[dim]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {shape[dim]} (input tensor's size at dimension "
            f"{dim}), but got split_sizes={list(sizes)}"
        )
    return _split_with_sizes(input, dim, sizes)


def _separate(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns the parts as tensors that autograd does not treat as views: each may be written in place."""
    for part in parts:
        memory = part._storage
        part._memory = memory.of(memory.array, memory.version and 0)
        part._view, part._requires_grad = None, part._edge is not None
    return parts


@composite()
def unsafe_split(tensor: Tensor, split_size, dim: int = 0) -> tuple[Tensor, ...]:
    """Like `split`, but each part may be written in place, provided the whole is no longer used.

    >>> torch.arange(2).unsafe_split(1)[1].add_(1)
    tensor([2])
    """
    return _separate(split(tensor, split_size, dim))


@composite()
def unsafe_split_with_sizes(input: Tensor, split_sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Like `split_with_sizes`, but each part may be written in place, provided the whole is no longer used.

    >>> torch.arange(2).unsafe_split_with_sizes((1, 1))[1].add_(1)
    tensor([2])
    """
    return _separate(split_with_sizes(input, split_sizes, dim))


@composite()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits a tensor into at most `chunks` views along `dim`, equal in size except that the last may be smaller.

    Args:
        chunks: how many parts.
        dim: the dimension that is divided.

    >>> [len(part) for part in torch.arange(5).chunk(3)]
    [2, 2, 1]
    """
    shape = input._array.shape
    if not shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks.__class__ is not int:
        chunks = as_integer(chunks, "chunks")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = wrap_dim(dim, len(shape))
    n = shape[dim]
    size = -(-n // chunks)
    if not size:
        return _split_with_sizes(input, dim, (0,) * chunks)
    return split(input, size, dim)


@composite()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Like `chunk`, but each part may be written in place, provided the whole is no longer used.

    >>> torch.arange(2).unsafe_chunk(2)[1].add_(1)
    tensor([2])
    """
    return _separate(chunk(input, chunks, dim))


def _places(name: str, **given: Any) -> Any:
    """Returns the one argument that says where to split: PyTorch has a name for each type of it."""
    there = [value for value in given.values() if value is not None]
    if len(there) != 1:
        raise TypeError(f"{name}() expected one of {', '.join(given)}, but got {len(there)} of them")
    return there[0]


@composite()
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
    tensor_indices_or_sections: Any = None,
) -> tuple[Tensor, ...]:
    """Splits a tensor into views along `dim`: a number of nearly equal parts, or at the given indices.

    By keyword, a number is also called `sections`, a tuple `indices`, and a tensor `tensor_indices_or_sections`.

    >>> [len(part) for part in torch.arange(5).tensor_split(3)]
    [2, 2, 1]
    """
    indices_or_sections = _places(
        "tensor_split",
        indices_or_sections=indices_or_sections,
        indices=indices,
        sections=sections,
        tensor_indices_or_sections=tensor_indices_or_sections,
    )
    shape = input._array.shape
    if not shape:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, len(shape))
    n = shape[dim]
    if isinstance(indices_or_sections, Tensor):
        given = indices_or_sections
        expected = "tensor_split expected tensor_indices_or_sections to"
        if not given.is_cpu:
            raise RuntimeError(f"{expected} be on cpu, but it's on {given.device}")
        if given._array.dtype.name != "int64":
            raise RuntimeError(f"{expected} have dtype of long, but got {scalar_type(given)}")
        if given.ndim > 1:
            raise RuntimeError(
                f"{expected} be a zero-dimensional or one-dimensional tensor, but got a tensor with {given.ndim} dims"
            )
        indices_or_sections = given.tolist()
    if isinstance(indices_or_sections, tuple | list):
        cuts = [0, *ints(indices_or_sections), n]
        cuts = [max(min(c + n if c < 0 else c, n), 0) for c in cuts]
    else:
        count = as_integer(indices_or_sections, "indices_or_sections")
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        small, larger = divmod(n, count)
        cuts = [i * small + min(i, larger) for i in range(count + 1)]
    return tuple(window(input, dim, a, max(a, b)) for a, b in itertools.pairwise(cuts))


_EXAMPLES = {
    "hsplit": """>>> torch.hsplit(torch.tensor([[1, 2, 3], [4, 5, 6]]), [1])
(tensor([[1],
        [4]]), tensor([[2, 3],
        [5, 6]]))""",
    "vsplit": """>>> torch.vsplit(torch.tensor([[1, 2], [3, 4]]), 2)
(tensor([[1, 2]]), tensor([[3, 4]]))""",
    "dsplit": """>>> torch.dsplit(torch.arange(4).reshape(1, 1, 4), 2)
(tensor([[[0, 1]]]), tensor([[[2, 3]]]))""",
}


def _direction(name: str, least: int, dim_of) -> None:
    def function(
        input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
    ) -> tuple[Tensor, ...]:
        indices_or_sections = _places(name, indices_or_sections=indices_or_sections, indices=indices, sections=sections)
        ndim = input._array.ndim
        if ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {ndim} "
                "dimensions!"
            )
        dim = dim_of(ndim)
        if not isinstance(indices_or_sections, tuple | list):
            count, n = as_integer(indices_or_sections, "sections"), input._array.shape[dim]
            if count <= 0 or n % count:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {n} is not "
                    f"divisible by the split_size {count}!"
                )
        return tensor_split(input, indices_or_sections, dim)

    function.__name__ = function.__qualname__ = name
    along = {"hsplit": "1 (0 if it is the only one)", "vsplit": "0", "dsplit": "2"}[name]
    function.__doc__ = (
        f"Splits a tensor into views along dimension {along}: a number of equal parts, or at the indices of a list.\n\n"
        f"Raises:\n    RuntimeError: If there are fewer than {least} dimension{'s' * (least > 1)}, or the parts would "
        f"not be equal.\n\n{_EXAMPLES[name]}"
    )
    composite("function")(function)
    also_one_by_one(function)


_direction("hsplit", 1, lambda ndim: 0 if ndim == 1 else 1)
_direction("vsplit", 2, lambda ndim: 0)
_direction("dsplit", 3, lambda ndim: 2)
