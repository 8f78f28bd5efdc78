"""Indexed reads and writes along a dimension: `gather`, `scatter`, `index_select`, `index_add`, `take`, ..."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import check_sources, is_expanded, store_out
from tensorgrad.dispatch.promotion import plain_number
from tensorgrad.dtypes import COMPLEX_KINDS, I64, NUMBERS, from_numpy_dtype, int64, scalar_type
from tensorgrad.errors import (
    as_integer,
    check_is_number,
    check_number,
    invalid_combination,
    no_dimensions,
    warn,
    wrap_dim,
    wrong_argument,
)
from tensorgrad.kernels.array import index as kernels
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.layouts import dense_order
from tensorgrad.ops import shape as shapes
from tensorgrad.ops.compare import where
from tensorgrad.ops.create import tensor
from tensorgrad.ops.index import masked_select
from tensorgrad.ops.sparse_coordinates import at_coordinates
from tensorgrad.tensor import Tensor, wrap
from tensorgrad.transforms.batch import BatchedArray, whole

# --- checks ----------------------------------------------------------------------------------------------------------


def _name(x) -> str:
    return scalar_type(from_numpy_dtype(x.dtype))


def _check_index_type(name: str, index) -> None:
    if index.dtype is not I64 and index.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")


def _check_gather(x, dim, index):
    dim = wrap_dim(dim, x.ndim)
    if index.size:
        if index.dtype is not I64:
            _check_index_type("gather", index)
        if max(index.ndim, 1) != max(x.ndim, 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
        d = _larger(index.shape, x.shape or (1,), dim)
        if d is not None:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than "
                f"self {list(x.shape)} apart from dimension {dim}"
            )
    return x, dim, index


def _larger(shape, limits, dim=None):
    """Returns the first dimension (except `dim`) in which `shape` is larger than `limits`, or None."""
    if shape != limits:
        for d, n in enumerate(shape):
            if n > limits[d] and d != dim:
                return d
    return None


def _check_scatter(x, dim, index, src, *rest):
    dim = wrap_dim(dim, x.ndim)
    if index.size and index.dtype is not I64:
        _check_index_type("scatter", index)
    if src.dtype is not x.dtype and src.dtype != x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if index.size:
        if max(index.ndim, 1) != max(x.ndim, 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
        single = not src.ndim and index.ndim  # one scalar for all indices
        if not single and max(src.ndim, 1) != max(index.ndim, 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
        too_large = _larger(index.shape, x.shape or (1,), dim) is not None
        if too_large or (not single and _larger(index.shape, src.shape or (1,)) is not None):
            limit = "" if single else f" and to be no larger size than src {list(src.shape)}"
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart from dimension "
                f"{dim}{limit}"
            )
    return (x, dim, index, src, *rest)


# --- gather and scatter ----------------------------------------------------------------------------------------------


def _gather_in_batch(input, dim, index, size, mapped):
    made = _gather(_rows(input, "input" in mapped, size), dim + 1, _rows(index, "index" in mapped, size))
    return made.squeeze(1) if index.ndim == ("index" in mapped) else made


def _scattered_in_batch(row, input, dim, index, src, size, mapped, *more):
    """`scatter` and the like on values with a batch."""
    rows, at = _rows(input, "input" in mapped, size), _rows(index, "index" in mapped, size)
    src = src if "src" in mapped else src.expand(size, *src.shape)
    if src.ndim == 1:  # one number for all elements
        src = src.reshape(size, *(1,) * (at.ndim - 1)).expand(at.shape)
    made = row(rows, dim + 1, at, src, *more)
    return made.squeeze(1) if input.ndim == ("input" in mapped) else made


def _rows(x: Tensor, mapped: bool, size: int) -> Tensor:
    """A value with the batch first, and at least one more dimension."""
    x = x if mapped else x.expand(size, *x.shape)
    return x.unsqueeze(1) if x.ndim == 1 else x


_gather = op("gather(input, dim: int, index)", "scatter.gather", batch=_gather_in_batch, linear="input",
             strides="rows",
             prepare=_check_gather, where=(),
             input=lambda g, input_shape, dim, index: g.new_zeros(input_shape).scatter_add(dim, index, g),
             shape=lambda x, dim, index: (index.shape, x.dtype))  # fmt: skip
_sparsely = op("gather_of_sparse_gradient(input, dim: int, index)", "scatter.gather", linear="input",
               batch=_gather_in_batch,
               prepare=_check_gather, where=(),
               input=lambda g, input_shape, dim, index: _where_gathered(g, tuple(input_shape), dim, index),
               backward_name="GatherBackward0", shape=lambda x, dim, index: (index.shape, x.dtype))  # fmt: skip
_scatter = op("scatter(input, dim: int, index, src)", "scatter.scatter", linear="input + src", prepare=_check_scatter,
              batch=lambda input, dim, index, src, size, mapped:
              _scattered_in_batch(_scatter, input, dim, index, src, size, mapped), where=(),
              input=lambda g, dim, index: g.scatter(dim, index, 0),
              src=lambda g, dim, index, src_shape: _read_back(g, dim, index, src_shape),
              shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip
_scatter_add = op("scatter_add(input, dim: int, index, src)", "scatter.scatter_add", linear="input + src",
                  batch=lambda input, dim, index, src, size, mapped:
                  _scattered_in_batch(_scatter_add, input, dim, index, src, size, mapped),
                  prepare=_check_scatter, where=(),
                  input=lambda g: g,
                  src=lambda g, dim, index, src_shape: _read_back(g, dim, index, src_shape),
                  shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip


def _reduce_weights(out, input, dim, index, src, reduce, include_self):
    """Returns the derivatives of `scatter_reduce` by each element of `input` and of the covered part of `src`.

    Each of these elements contributes to one element of the result. Equal extrema share it evenly. In a product, a
    factor's derivative is the product of the others, which is 0 if one of them is.
    """
    of_input: Any
    of_src: Any
    if reduce == "sum":
        of_input, of_src = 1 if include_self else input.new_ones(input.shape), 1
    elif reduce == "mean":
        count = (input.new_ones if include_self else input.new_zeros)(input.shape)
        count = count.scatter_add(dim, index, src.new_ones(src.shape))
        of_input = 1 / count.masked_fill(count == 0, 1)
        of_src = of_input.gather(dim, index)
    elif reduce == "prod":
        of_input = input.new_ones(input.shape).scatter_reduce(dim, index, src, "prod")
        of_src = _product_of_others(input, dim, index, src, include_self)
    else:
        from_input = (input == out).to(input.dtype)
        if not include_self:
            from_input = from_input.scatter(dim, index, 0)
        from_src = (_covered(src, index) == out.gather(dim, index)).to(input.dtype)
        count = from_input.scatter_add(dim, index, from_src)
        count = count.masked_fill(count == 0, 1)
        of_input, of_src = from_input / count, from_src / count.gather(dim, index)
    if not include_self:
        of_input = of_input.scatter(dim, index, 0)
    return of_input, of_src


def _reduce_gradients(g, out, input, dim, index, src, reduce, include_self):
    """Returns the gradients of `scatter_reduce` for `input` and `src`."""
    of_input, of_src = _reduce_weights(out, input, dim, index, src, reduce, include_self)
    return g * of_input, _padded(g.gather(dim, index) * of_src, src.shape)


def _reduce_tangent(out, input, input_t, dim, index, src, src_t, reduce, include_self):
    """Returns the tangent of `scatter_reduce`."""
    of_input, of_src = _reduce_weights(out, input, dim, index, src, reduce, include_self)
    return (input_t * of_input).scatter_add(dim, index, _covered(src_t, index) * of_src)


def _product_of_others(input, dim, index, src, include_self):
    """Computes, for each element of `src`, the product of all others with the same index.

    The formula is differentiable at zeros, too: the product of the nonzero factors, times the one zero among the others
    (two or more of them make the product 0).
    """
    src = _covered(src, index)
    zero, start_zero = (src == 0).to(src.dtype), (input == 0).to(input.dtype)
    start, count, at_zero = input.masked_fill(input == 0, 1), start_zero, input * start_zero
    if not include_self:
        start, count, at_zero = (input.new_full(input.shape, value) for value in (1, 0, 0))
    nonzero = start.scatter_reduce(dim, index, src.masked_fill(src == 0, 1), "prod").gather(dim, index)
    others = count.scatter_add(dim, index, zero).gather(dim, index) - zero
    other_zero = at_zero.scatter_add(dim, index, src * zero).gather(dim, index) - src * zero
    factor = (others == 0).to(src.dtype) + (others == 1).to(src.dtype) * other_zero
    return nonzero / src.masked_fill(src == 0, 1) * factor


_scatter_reduce = op(
    "scatter_reduce(input, dim: int, index, src, reduce: str, include_self: bool)", "scatter.scatter_reduce",
    batch=lambda input, dim, index, src, reduce, include_self, size, mapped: _scattered_in_batch(
        _scatter_reduce, input, dim, index, src, size, mapped, reduce, include_self
    ),
    prepare=_check_scatter, where=(), backward=_reduce_gradients, wrt=("input", "src"), jvp=_reduce_tangent,
    shape=lambda x, *rest: (x.shape, x.dtype),
)  # fmt: skip


def _covered(src: Tensor, index: Tensor) -> Tensor:
    """Returns the part of `src` that an index of that shape reads."""
    if src.shape == index.shape or not index.ndim:
        return src
    return src[tuple(slice(0, n) for n in index.shape)]


def _padded(g: Tensor, shape: tuple) -> Tensor:
    """Pads the gradient of the covered part of a source with zeros for the rest."""
    if tuple(g.shape) == tuple(shape) or not g.ndim:
        return g
    return shapes.place(g, tuple(shape), shapes.slice_at, (tuple(slice(0, n) for n in g.shape),))


def _read_back(g, dim, index, src_shape):
    return _padded(g.gather(dim, index), src_shape)


def _where_gathered(g: Tensor, shape: tuple, dim: int, index: Tensor) -> Tensor:
    """The gradient of `gather` as a sparse tensor: each element of `g` at the place it was read from."""
    if not shape:
        where = np.empty((0, g.numel()), np.int64)
    else:
        places = index._array.reshape(-1) if not index.ndim else index._array
        where = np.indices(places.shape).reshape(places.ndim, places.size)
        where[dim] = places.reshape(-1)
    return at_coordinates(g.reshape(-1), wrap(where), shape)


@composite()
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out=None) -> Tensor:
    """Gathers along `dim`: `out[i, j] = input[index[i, j], j]` for `dim` 0, `input[i, index[i, j]]` for 1, etc.

    `index` (int64 or int32) has as many dimensions as `input`; the result has the shape of `index`. With `sparse_grad`
    the gradient of `input` is a sparse tensor.

    Args:
        dim: the dimension in which elements are looked up.
        index: where to look; in the other dimensions at most as large as `input`.
        sparse_grad: whether the gradient is sparse.

    Raises:
        RuntimeError: If an index is out of range or the shapes do not fit.

    >>> torch.tensor([[1, 2], [3, 4]]).gather(1, torch.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    if sparse_grad and out is None and input._array.__class__ is np.ndarray:
        return _sparsely(input, dim, index)
    return _gather(input, dim, index, out=out)


def _check_source(index: Tensor, src: Tensor) -> None:
    """Raises: RuntimeError for a source without dimensions that has too few elements: a number is for all indices."""
    array = index._array
    if src._array.ndim or not array.size:
        return
    if array.ndim > 1:
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if array.size > 1:
        raise RuntimeError(f"Expected index {list(array.shape)} to be no larger than src {list(src._array.shape)}")


def _source(input: Tensor, src, value, index: Tensor):
    """Returns the values to write: the given tensor, or the number as a tensor of the input's dtype."""
    if src is not None and value is not None:
        raise invalid_combination("scatter", "expected either src or value, but got both")
    given = value if src is None else src
    if isinstance(given, Tensor):
        if src is None and given._array.ndim:
            raise wrong_argument(value, "value", "Number")
        if src is not None:
            _check_source(index, src)
        return given
    given = plain_number(given)
    if given.__class__ not in NUMBERS:
        raise TypeError(f"scatter(): argument 'src' must be Tensor or Number, not {type(given).__name__}")
    check_is_number(given, "value" if src is None else "src")
    if given.__class__ is complex:
        check_number(given, input.dtype)
    return tensor(given, device=input.device).to(input.dtype)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@composite(in_place=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src=None, *, value=None, reduce: str | None = None, out=None
) -> Tensor:
    """Returns a copy of `input` with `src` (a tensor, or a number for all indices) written where `gather` would read.

    If indices repeat, one of the values is kept. With `reduce` "add" or "multiply", values are combined with the
    existing ones instead.

    >>> torch.zeros(2, 3).scatter(1, torch.tensor([[2], [0]]), 1.0)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    given = _source(input, src, value, index)
    if reduce is None:
        return _scatter(input, dim, index, given, out=out)
    if reduce not in _REDUCTIONS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    if isinstance(src, Tensor):
        warn(
            "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future "
            "PyTorch release. Use torch.scatter_reduce instead for more reduction options.",
        )
    if not given._array.ndim:
        given = given.expand(index._array.shape)
    return _scatter_reduce(input, dim, index, given, _REDUCTIONS[reduce], True, out=out)


@composite(in_place=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out=None) -> Tensor:
    """Returns a copy of `input` with `src` added where `gather` would read; indices may repeat.

    >>> torch.zeros(2).scatter_add(0, torch.tensor([1, 1, 0]), torch.tensor([1.0, 2.0, 3.0]))
    tensor([3., 3.])
    """
    _check_source(index, src)
    return _scatter_add(input, dim, index, src, out=out)


def _check_reduce(reduce: str) -> None:
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")


@composite(in_place=True)
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True,
                   out=None) -> Tensor:  # fmt: skip
    """Returns a copy of `input` with `src` reduced into the elements where `gather` would read.

    `reduce` is "sum", "prod", "mean", "amax" or "amin". Without `include_self`, the old values of elements that are
    written are ignored.

    >>> x, index = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 0])
    >>> torch.zeros(2).scatter_reduce(0, index, x, reduce="amax")
    tensor([3., 2.])
    """
    _check_reduce(reduce)
    if reduce == "mean" and input.dtype is dtypes.bool:
        raise NotImplementedError("\"scatter_gather_tensor_cpu_reduce_mean\" not implemented for 'Bool'")
    _check_source(index, src)
    return _scatter_reduce(input, dim, index, src, reduce, include_self, out=out)


# --- whole slices ----------------------------------------------------------------------------------------------------


def _check_index_select(x, dim, index):
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype is not I64 and index.dtype.name != "int32":
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if not x.ndim and index.size != 1:
        raise RuntimeError("index_select(): Index to scalar can have only 1 value, got " + f"{index.size} value(s)")
    dim = wrap_dim(dim, x.ndim)
    if x.ndim > 1 and not x.shape[dim] and index.size:
        raise RuntimeError("index_select(): self indexing axis dim should be positive")
    return x, dim, index


def _index_of_slices(index: Tensor, dim: int, shape: tuple, mapped: bool) -> Tensor:
    """The indices of whole slices along `dim` of one sample as an index for each element of values of this shape."""
    size, *inner = shape
    index = index.reshape(size if mapped else 1, *(1,) * dim, -1, *(1,) * (len(inner) - dim - 1))
    return index.to(int64).expand(size, *inner[:dim], index.shape[dim + 1], *inner[dim + 1 :])


def _select_in_batch(input, dim, index, size, mapped):
    rows = _rows(input, "input" in mapped, size)
    if "index" not in mapped:
        made = _index_select(rows, dim + 1, index)
    else:
        made = _gather(rows, dim + 1, _index_of_slices(index, dim, rows.shape, True))
    return made.squeeze(1) if input.ndim == ("input" in mapped) else made


def _slices_in_batch(row, into, input, dim, index, source, size, mapped, *more):
    """`index_add` or `index_copy` on values with a batch; `into` is the same op for single elements."""
    rows, source = _rows(input, "input" in mapped, size), _rows(source, "source" in mapped, size)
    if "index" not in mapped:
        made = row(rows, dim + 1, index, source, *more)
    else:
        made = into(rows, dim + 1, _index_of_slices(index, dim, source.shape, True), source)
    return made.squeeze(1) if input.ndim == ("input" in mapped) else made


def _add_in_batch(input, dim, index, source, alpha, size, mapped):
    source = source if alpha == 1 else source * alpha
    return _slices_in_batch(_index_add, _scatter_add, input, dim, index, source, size, mapped)


def _fill_in_batch(input, dim, index, value, size, mapped):
    rows, n = _rows(input, "input" in mapped, size), index.numel() // (size if "index" in mapped else 1)
    index = index.masked_fill(index < 0, 0) + (index < 0) * (index + rows.shape[dim + 1])
    value = value.to(rows.dtype).reshape(size if "value" in mapped else 1, *(1,) * (rows.ndim - 1))
    shape = (*rows.shape[: dim + 1], n, *rows.shape[dim + 2 :])
    value = value.expand(shape)
    made = _scatter(rows, dim + 1, _index_of_slices(index, dim, shape, "index" in mapped), value)
    return made.squeeze(1) if input.ndim == ("input" in mapped) else made


def _select_shape(x, dim, index):
    return ((*x.shape[:dim], index.size, *x.shape[dim + 1 :]) if x.ndim else ()), x.dtype


_index_select = op("index_select(input, dim: int, index)", "scatter.index_select", linear="input",
                   batch=_select_in_batch,
                   prepare=_check_index_select,
                   input=lambda g, input_shape, dim, index:
                   g.new_zeros(input_shape).index_add(dim, index, g), shape=_select_shape,
                   doc="The slices of `input` along `dim` at the indices in `index` (an integer vector). Raises "
                   "IndexError for an index out of range.")  # fmt: skip


def _check_is_vector(name: str, index) -> None:
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with type: {_name(index)} and "
            f"size: {list(index.shape)}"
        )


def _check_index_add(x, dim, index, src, alpha):
    dim = wrap_dim(dim, x.ndim)
    if alpha.__class__ is complex and x.dtype.kind not in COMPLEX_KINDS:
        check_number(alpha, from_numpy_dtype(x.dtype))
    _check_is_vector("index_add_", index)
    if index.dtype is not I64 and index.dtype.name != "int32":
        raise RuntimeError(f"index_add_(): Expected dtype int32/int64 for index but got: {_name(index)}")
    if src.dtype is not x.dtype and src.dtype != x.dtype:
        raise RuntimeError(f"index_add_(): self ({_name(x)}) and source ({_name(src)}) must have the same scalar type")
    if src.ndim and dim >= src.ndim:
        raise RuntimeError(
            f"index_add_(): Indexing dim {dim} is out of bounds of the source tensor with dim {src.ndim}"
        )
    count = src.shape[dim] if src.ndim else 1
    if index.size != count:
        raise RuntimeError(
            f"index_add_(): Number of indices ({index.size}) should be equal to source.size(dim): ({count}), "
            f"for dim: {dim}"
        )
    rest = (*src.shape[:dim], *src.shape[dim + 1 :])
    if (*x.shape[:dim], *x.shape[dim + 1 :]) != rest or (not x.ndim and src.size != 1):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(x.shape)} source.shape = {list(src.shape)}"
        )
    return x, dim, index, src, int(alpha) if isinstance(alpha, float) and x.dtype.kind in "iub" else alpha


_index_add = op("index_add(input, dim: int, index, source, *, alpha: number = 1)", "index.index_add",
                linear="input + source", batch=_add_in_batch, where=(),
                prepare=_check_index_add, input=lambda g: g,
                source=lambda g, dim, index, alpha, source_shape: _slices_back(g, dim, index, alpha, source_shape),
                shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip


def _slices_back(g, dim, index, alpha, source_shape):
    g = g.index_select(dim, index)
    return (g * alpha if alpha != 1 else g).reshape(source_shape)


@composite(in_place=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha=1, out=None) -> Tensor:
    """Returns a copy of `input` with `alpha` times slice k of `source` along `dim` added to slice `index[k]`.

    Raises:
        RuntimeError: If an index is out of range or the shapes do not fit.

    >>> torch.zeros(3).index_add(0, torch.tensor([0, 0, 2]), torch.ones(3))
    tensor([2., 0., 1.])
    """
    return _index_add(input, dim, index, source, alpha=alpha, out=out)


def _check_index_copy(x, dim, index, src):
    dim = wrap_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    if index.dtype.name != "int64":
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {_name(index)}")
    if src.dtype != x.dtype:
        raise RuntimeError(
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {_name(x)} and (source) "
            f"{_name(src)}"
        )
    if not src.ndim and index.size != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {index.size})")
    if src.ndim and x.ndim and src.ndim != x.ndim:
        raise IndexError(
            f"index_copy_(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({src.ndim}), destination dimensionality ({x.ndim})"
        )
    to, got = (*x.shape[:dim], *x.shape[dim + 1 :]), (*src.shape[:dim], *src.shape[dim + 1 :])
    if to != got:
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
            f"{' '.join(map(str, to))} at dimension {dim} and source slice shape: "
            f"{' '.join(map(str, got))} at dimension 0."
        )
    if src.ndim and index.size != src.shape[dim]:
        raise IndexError(
            f"index_copy_(): Number of indices ({index.size}) should be equal to source.size(dim) ({src.shape[dim]})"
        )
    return x, dim, index, src


_index_copy = op("index_copy(input, dim: int, index, source)", "scatter.index_copy", linear="input + source", where=(),
                 prepare=_check_index_copy,
                 batch=lambda input, dim, index, source, size, mapped:
                 _slices_in_batch(_index_copy, _scatter, input, dim, index, source, size, mapped),
                 input=lambda g, dim, index: g.index_fill(dim, index, 0),
                 source=lambda g, dim, index, source_shape: _slices_back(g, dim, index, 1, source_shape),
                 shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip


@composite(in_place=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out=None) -> Tensor:
    """Returns a copy of `input` with slice `index[k]` along `dim` replaced by slice k of `source`.

    Raises:
        IndexError: If an index is out of range.
        RuntimeError: If the shapes do not fit.

    >>> torch.zeros(3).index_copy(0, torch.tensor([2, 0]), torch.tensor([5.0, 6.0]))
    tensor([6., 0., 5.])
    """
    return _index_copy(input, dim, index, source, out=out)


def _check_index_fill(x, dim, index, value):
    if index.dtype.name != "int64":
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise IndexError("Index has to be a vector/scalar")
    return x, wrap_dim(dim, x.ndim), index, value


_index_fill = op("index_fill(input, dim: int, index, value)", "scatter.index_fill", linear="input + value",
                 strides="input", prepare=_check_index_fill, batch=_fill_in_batch, where=(),
                 input=lambda g, dim, index: g.index_fill(dim, index, 0),
                 value=lambda g, dim, index: (g - g.index_fill(dim, index, 0)).sum(),
                 shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip


@composite()
def index_fill(input: Tensor, dim: int, index: Tensor, value) -> Tensor:
    """Returns a copy of `input` with the slices `index` along `dim` set to `value`, a number or a 0-dimensional tensor.

    >>> torch.index_fill(torch.tensor([[1, 2, 3], [4, 5, 6]]), 1, torch.tensor([0, 2]), -1)
    tensor([[-1,  2, -1],
            [-1,  5, -1]])
    """
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value._array.ndim} dimension(s)."
            )
    else:
        check_is_number(value, "value")
        if value.__class__ is complex and input._array.dtype.kind not in COMPLEX_KINDS:
            raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
        value = tensor(value, device=input.device)
    return _index_fill(input, dim, index, value.to(input.dtype))


@composite("method")
def index_fill_(self: Tensor, dim: int, index: Tensor, value) -> Tensor:
    """Writes `value` (a number or a 0-dimensional tensor) in place to the slices `index` along `dim`."""
    check_sources(self, (index,), refuses=True)
    if not isinstance(self._array, np.ndarray) or not is_expanded(self._array) or inplace._tracked(self, (value,)):
        return inplace.replace(self, index_fill, (dim, index, value), {}, apart=False)
    warn(
        "Use of index_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar"
    )
    index_fill(self, dim, index, value)  # which checks the arguments
    for i in index.flatten().tolist():
        self.select(dim, i).fill_(value.item() if isinstance(value, Tensor) else value)
    return self


@composite(in_place=True)
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
                 out=None) -> Tensor:  # fmt: skip
    """Returns a copy of `input` with slice k of `source` along `dim` reduced into slice `index[k]`.

    `reduce` is "prod", "mean", "amax" or "amin".

    >>> torch.index_reduce(torch.ones(2), 0, torch.tensor([0, 1, 0]), torch.tensor([2.0, 3.0, 4.0]), "prod")
    tensor([8., 3.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    _check_index_add(input._array, dim, index._array, source._array, 1)
    dim = wrap_dim(dim, input._array.ndim)
    shape = [1] * max(source._array.ndim, 1)
    shape[dim] = -1
    index = index.reshape(shape).expand(source._array.shape or (1,))
    source = source if source._array.ndim else source.reshape(1)
    return _scatter_reduce(input, dim, index, source, reduce, include_self, out=out)


# --- flat indices ----------------------------------------------------------------------------------------------------


def _flat_index(name: str, input: Tensor, index: Tensor) -> Tensor:
    """Makes negative elements of `index` count from the end."""
    array, n = index._array, input._array.size
    if array.dtype.name != "int64":
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {_name(array)}")
    if not array.size:
        return index
    if not n:
        raise IndexError(f"{name}(): tried to take from an empty tensor")
    if index.is_meta:
        return index
    every = whole(index)
    if input._storage.guard(kernels.checks_itself)(input._storage.xp, every._array, -n, n, 0):
        return index + (index < 0) * n
    low, high = int(every.min()), int(every.max())
    if low < -n or high >= n:
        raise IndexError(
            f"out of range: tried to access index {high if high >= n else low} on a tensor of {n} elements."
        )
    return index + (index < 0) * n if low < 0 else index


@composite()
def take(input: Tensor, index: Tensor, *, out=None) -> Tensor:
    """Returns the elements of `input`, flattened in row-major order, at the indices `index`.

    Raises:
        IndexError: If an index is out of range.

    >>> torch.tensor([[4, 3], [5, 1]]).take(torch.tensor([0, 3]))
    tensor([4, 1])
    """
    flat = _flat_index("take", input, index)
    taken = _index_select(input.reshape(-1), 0, flat.reshape(-1)).reshape(flat._array.shape)
    return store_out("take", out, taken, (input, index))


@composite(in_place=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Returns a copy of `input` with `source` written (`accumulate`: added) at flat, row-major indices `index`.

    >>> torch.put(torch.zeros(2, 2), torch.tensor([0, 3]), torch.tensor([5.0, 6.0]))
    tensor([[5., 0.],
            [0., 6.]])
    """
    flat = _flat_index("put_", input, index)
    if source._array.dtype != input._array.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{_name(input._array)} and source.dtype = {_name(source._array)}"
        )
    if source._array.size != index._array.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source._array.size}, index.numel() = {index._array.size}"
        )
    scattered = (_index_add if accumulate else _scatter)(input.reshape(-1), 0, flat.reshape(-1), source.reshape(-1))
    return scattered.reshape(input._array.shape)


@composite()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out=None) -> Tensor:
    """Returns the elements of `input` at `indices` along `dim`; the other dimensions broadcast against each other.

    >>> x = torch.tensor([[3, 1, 2]])
    >>> x.take_along_dim(torch.tensor([[1, 2, 0]]), 1)
    tensor([[1, 2, 3]])
    """
    if indices.dtype is not int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {scalar_type(indices)}")
    if dim is None:
        return _gather(input.reshape(-1), 0, indices.reshape(-1), out=out)
    ndim = input._array.ndim
    if ndim != indices._array.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{ndim} dimensions for input, and {indices._array.ndim} dimensions for indices"
        )
    if not ndim:
        raise no_dimensions(dim)
    dim = wrap_dim(dim, ndim)
    a, b = input._array.shape, indices._array.shape
    if not indices.is_meta and indices._array.size and int(whole(indices).min()) < 0:
        indices = indices + (indices < 0) * a[dim]  # count from the end
    if a[:dim] != b[:dim] or a[dim + 1 :] != b[dim + 1 :]:
        common = matmul_kernels.broadcast_lead((*a[:dim], 1, *a[dim + 1 :]), (*b[:dim], 1, *b[dim + 1 :]))
        input = input.expand((*common[:dim], a[dim], *common[dim + 1 :]))
        indices = indices.expand((*common[:dim], b[dim], *common[dim + 1 :]))
    return _gather(input, dim, indices, out=out)


@composite("function")
def unravel_index(indices: Tensor, shape) -> tuple[Tensor, ...]:
    """Converts flat, row-major indices into a tensor of `shape` to a tuple of coordinates, one tensor per dimension.

    Raises:
        TypeError: If `indices` or `shape` are not integers.
        ValueError: If a size is negative.

    >>> torch.unravel_index(torch.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    if indices.is_floating_point() or indices.is_complex() or indices.dtype is dtypes.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(shape, tuple | list):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for n in shape:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(shape)}")
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    device = indices.device
    found = indices.to(int64).unsqueeze(-1) // tensor(steps, dtype=int64, device=device)
    return (found % tensor(list(shape), dtype=int64, device=device)).unbind(-1)


# --- masks -----------------------------------------------------------------------------------------------------------


def _under_mask(g, mask, source_shape):
    from tensorgrad.ops.join import cat

    if whole(mask) is not mask:  # how many elements are under the mask depends on the sample (vmap)
        places = (mask.reshape(-1).cumsum(0) - 1).clamp(min=0)
        under = g.masked_fill(~mask, 0).reshape(-1)
        count = max(math.prod(source_shape), 1)
        made = g.new_zeros(count).scatter_add(0, places.clamp(max=count - 1), under)
        return made[: math.prod(source_shape)].reshape(source_shape)
    found = masked_select(g, mask)
    return cat([found, g.new_zeros(math.prod(source_shape) - found.numel())]).reshape(source_shape)


def _masked_in_batch(input, mask, source, size, mapped):
    shape = (size, *input.shape["input" in mapped :])
    input, mask, source = (
        _rows(x, name in mapped, size) for name, x in (("input", input), ("mask", mask), ("source", source))
    )
    flat = mask.flatten(1)
    place = (flat.cumsum(1) - 1).clamp(min=0)  # of each element among those of the source
    if not source.numel() or not mask.numel():
        return input.clone().reshape(shape)
    try:
        found = source.flatten(1).gather(1, place)
    except RuntimeError:
        raise RuntimeError("Number of elements of source < number of ones in mask") from None
    return where(mask, found.reshape(mask.shape), input).reshape(shape)


_masked_scatter = op("masked_scatter(input, mask, source)", "scatter.masked_scatter", linear="input + source", where=(),
                     batch=_masked_in_batch,
                     input=lambda g, mask: g.masked_fill(mask, 0),
                     source=lambda g, mask, source_shape: _under_mask(g, mask, source_shape),
                     shape=lambda x, *rest: (x.shape, x.dtype))  # fmt: skip


@composite(in_place=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Returns a copy of `input` whose elements where `mask` is True are replaced, in order, by those of `source`.

    Raises:
        RuntimeError: If `source` has too few elements.

    >>> x = torch.zeros(3)
    >>> x.masked_scatter(torch.tensor([True, False, True]), torch.tensor([4.0, 5.0]))
    tensor([4., 0., 5.])
    """
    if mask._array.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {_name(mask._array)}")
    if input._array.dtype != source._array.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{_name(input._array)} and {_name(source._array)}"
        )
    if input._array.shape != mask._array.shape:
        input, mask = shapes.broadcast_tensors(input, mask)
    return _masked_scatter(input, mask, source)


# --- replacing a view of a copy --------------------------------------------------------------------------------------


def _gapless(input: Tensor) -> Tensor:
    """A copy in the layout of the input if that has no gaps, else in rows."""
    array = input._array
    dense = array.flags.c_contiguous or dense_order(array) is not None
    return input.clone() if dense else input.clone(memory_format="contiguous")


def _whole_memory(input: Tensor) -> Tensor:
    """The place of the input in a copy of all its memory, which `as_strided` may ask for; of an expanded input, or of
    samples of a batch, a plain copy."""
    array, size = input._array, input._storage.nbytes()
    if array.nbytes == size or is_expanded(array) or array.__class__ is BatchedArray:
        return _gapless(input)
    copied = input.as_strided((size // array.itemsize,), (1,), 0).clone()
    return copied.as_strided(array.shape, input.stride(), input.storage_offset())


def _replaced(input: Tensor, src: Tensor, view, copy=_gapless) -> Tensor:
    if src._array.__class__ is BatchedArray:  # one copy for each sample
        out = input.masked_fill(src.new_zeros(input._array.shape, dtype=dtypes.bool), 0)
    else:
        out = copy(input)
    part = view(out)
    if part._array.shape != src._array.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}"
        )
    part.copy_(src)
    return out


@composite()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Returns a copy of `input` with `input.select(dim, index)` replaced by `src`.

    >>> torch.select_scatter(torch.zeros(2, 2), torch.tensor([1.0, 2.0]), dim=1, index=0)
    tensor([[1., 0.],
            [2., 0.]])
    """
    return _replaced(input, src, lambda x: shapes.select(x, dim, index))


@composite()
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start=None, end=None, step: int = 1, *, out=None) -> Tensor:
    """Returns a copy of `input` with `input[..., start:end:step]` at dimension `dim` replaced by `src`.

    >>> torch.slice_scatter(torch.zeros(4), torch.tensor([1.0, 2.0]), start=0, end=4, step=2)
    tensor([1., 0., 2., 0.])
    """
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    bounds = [v if v is None else as_integer(v, name) for name, v in (("start", start), ("end", end))]

    def part(x):
        d = wrap_dim(dim, x._array.ndim)
        n = x._array.shape[d]
        a, b = (None if v is None else max(min(v, n), -n - 1) for v in bounds)
        return shapes.window(x, d, a, b, step)

    replaced = _replaced(input, src, part)
    return store_out("slice_scatter", out, replaced)


@composite()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns a copy of `input` with `input.diagonal(offset, dim1, dim2)` replaced by `src`.

    >>> torch.diagonal_scatter(torch.zeros(2, 2), torch.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return _replaced(input, src, lambda x: shapes.diagonal(x, offset, dim1, dim2))


@composite()
def as_strided_scatter(input: Tensor, src: Tensor, size, stride, storage_offset: int | None = None) -> Tensor:
    """Returns a copy of `input` with `input.as_strided(size, stride, storage_offset)` replaced by `src`.

    >>> torch.as_strided_scatter(torch.zeros(2, 3), torch.tensor([1.0, 2.0]), (2,), (2,))
    tensor([[1., 0., 2.],
            [0., 0., 0.]])
    """
    return _replaced(input, src, lambda x: x.as_strided(size, stride, storage_offset), _whole_memory)
