"""Table lookup by index: `embedding`, and the corresponding `one_hot`."""

from __future__ import annotations

import numpy as np

from tensorgrad.autograd.graph import legacy_type_name
from tensorgrad.autograd.modes import no_grad
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dtypes import I64
from tensorgrad.errors import as_integer
from tensorgrad.kernels.array import index as kernels
from tensorgrad.ops.create import arange
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.ops.sparse_coordinates import at_coordinates
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole


@composite("functional", name="one_hot")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Adds a last dimension with a 1 at the class index and 0 elsewhere; int64.

    >>> torch.nn.functional.one_hot(torch.tensor([1, 0]), 3)
    tensor([[0, 1, 0],
            [1, 0, 0]])
    """
    array = tensor._array
    if array.dtype.name != "int64":
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not array.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return tensor.new_zeros((*array.shape, num_classes))
    if not tensor.is_meta:
        values = whole(tensor)
        low, high = kernels.extremes(np, values._storage.to_host(values._array))
        if low < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = (high if values is tensor else int(tensor.max())) + 1
        if high >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return _one_hot(tensor, num_classes)


_one_hot = op("one_hot(input, classes: int)", "index.one_hot", batch="leading", where=(),
              shape=lambda index, classes: (*index.shape, classes))  # fmt: skip


def _check_embedding(weight, indices, padding_idx, scale_grad_by_freq):
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_indices(indices, 1, "embedding")
    return weight, indices, padding_idx, scale_grad_by_freq


def check_indices(indices, position: int, name: str) -> None:
    """Raises: RuntimeError unless the array `indices`, an argument of the function `name`, is int64 or int32."""
    if indices.dtype is not I64 and indices.dtype.name not in ("int64", "int32"):
        raise RuntimeError(
            f"Expected tensor for argument #{position} 'indices' to have one of the following scalar types: Long, Int; "
            f"but got {legacy_type_name(indices)} instead (while checking arguments for {name})"
        )


def _shifted(indices, count: int, size: int, mapped: bool):
    """Indices into the rows of all samples below each other, of `count` rows each."""
    indices = indices if mapped else indices.expand(size, *indices.shape)
    starts = arange(0, size * count, count, device=indices.device).reshape(size, *(1,) * (indices.ndim - 1))
    return indices + starts


def _rows_of_batch(weight, indices, size, mapped):
    if "weight" not in mapped:
        return embedding_row(weight, indices, -1, False)
    if "indices" not in mapped:  # the same rows of every sample
        return (
            weight.index_select(1, indices.reshape(-1)).unflatten(1, indices.shape)
            if indices.ndim
            else (weight.index_select(1, indices.reshape(1)).squeeze(1))
        )
    return embedding_row(weight.flatten(0, 1), _shifted(indices, weight.shape[1], size, True), -1, False)


def _row_gradients_of_batch(g, indices, count, padding_idx, scale_grad_by_freq, size, mapped):
    g = g if "g" in mapped else g.expand(size, *g.shape)
    rows = _shifted(indices, count, size, "indices" in mapped)
    made = _embedding_grad(g, rows, size * count, -1, scale_grad_by_freq).unflatten(0, (size, count))
    if padding_idx >= 0:
        made.select(1, padding_idx).zero_()
    return made


embedding_row = op("embedding(weight, indices, padding_idx: int, scale_grad_by_freq: bool)", "scatter.embedding",
                   linear="weight", prepare=_check_embedding, where=(),
                   batch=lambda weight, indices, size, mapped: _rows_of_batch(weight, indices, size, mapped),
                weight=lambda g, weight_shape, indices, padding_idx, scale_grad_by_freq:
                _embedding_grad(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq),
                shape=lambda weight, indices, *rest: ((*indices.shape, weight.shape[1]), weight.dtype))  # fmt: skip
_embedding_grad = op("embedding_grad(g, indices, count: int, padding_idx: int, scale_grad_by_freq: bool)",
                     "scatter.embedding_grad", linear="g", where=(), batch=_row_gradients_of_batch,
                     g=lambda g, indices, padding_idx, scale_grad_by_freq:
                     _rows_again(g, indices, padding_idx, scale_grad_by_freq),
                     shape=lambda g, indices, count, *rest: ((count, g.shape[-1]), g.dtype))  # fmt: skip
_uses = op("embedding_uses(indices, count: int, dtype: any)", "scatter.uses", where=(),
           shape=lambda indices, count, dtype: (indices.shape, dtype))  # fmt: skip


def _rows_again(gg, indices, padding_idx, scale_grad_by_freq):
    """The derivative of `embedding_grad`, which is linear: looks up rows of `gg`, with the weights of the gradients."""
    rows = embedding_row(gg, indices, -1, False)
    if scale_grad_by_freq:
        rows = rows / _uses(indices, gg._array.shape[0], gg._array.dtype.name).unsqueeze(-1)
    if padding_idx >= 0:
        rows = rows.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    return rows


# The same with a sparse gradient: the indices, and the gradients of what they looked up.
_sparse_row = op("embedding_of_sparse_gradient(weight, indices, padding_idx: int, scale_grad_by_freq: bool)",
                 "scatter.embedding", linear="weight", prepare=_check_embedding, where=(),
                 batch=lambda weight, indices, size, mapped: _rows_of_batch(weight, indices, size, mapped),
                 backward_name="EmbeddingBackward0",
                 weight=lambda g, weight_shape, indices, padding_idx, scale_grad_by_freq:
                 _sparse_gradient(g, indices, tuple(weight_shape), padding_idx, scale_grad_by_freq),
                 shape=lambda weight, indices, *rest: ((*indices.shape, weight.shape[1]), weight.dtype))  # fmt: skip


def _sparse_gradient(g: Tensor, indices: Tensor, shape: tuple, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    indices, g = indices.reshape(-1), g.reshape(indices.numel(), shape[1])
    if padding_idx >= 0:
        kept = (indices != padding_idx).nonzero().squeeze(1)
        indices, g = indices[kept], g[kept]
    return at_coordinates(g, indices.reshape(1, -1), shape)


def looked_up(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    """The rows of a table at `indices`; with `sparse` its gradient stores only the rows that were looked up."""
    row = _sparse_row if sparse and weight._array.__class__ is np.ndarray else embedding_row
    return row(weight, indices, padding_idx, scale_grad_by_freq)


@composite("function", name="embedding")
def _torch_embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
                     sparse: bool = False) -> Tensor:  # fmt: skip
    """Returns the rows of the table `weight` at `indices`; see `torch.nn.functional.embedding`.

    >>> torch.embedding(torch.tensor([[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]), torch.tensor([2, 0]))
    tensor([[2.0000, 2.1000],
            [0.0000, 0.1000]])
    """
    return looked_up(weight, indices, padding_idx, scale_grad_by_freq, sparse)


@composite("function")
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scales down, in place, the rows of the table `input` at `indices` whose norm exceeds `max_norm`; returns `input`.

    Raises:
        IndexError: If an index is out of range.
        RuntimeError: If `input` does not have two dimensions.

    >>> torch.embedding_renorm_(torch.tensor([[3.0, 4.0], [6.0, 8.0]]), torch.tensor([1]), 5.0, 2.0)
    tensor([[3., 4.],
            [3., 4.]])
    """
    if input.ndim != 2:
        raise RuntimeError(
            f"Expected 2-dimensional tensor, but got {input.ndim}-dimensional tensor for argument #1 'self' "
            "(while checking arguments for embedding_renorm_)"
        )
    check_indices(indices._array, 2, "embedding_renorm_")
    if input.is_meta:
        return input
    used = indices.reshape(-1)  # a row that is used twice is written twice, with the same values
    rows = input.index_select(0, used)
    norms = vector_norm(rows, norm_type, 1)
    factor = (max_norm / (norms + 1e-7)).masked_fill(norms <= max_norm, 1)
    return input.index_copy_(0, used.long(), rows * factor.unsqueeze(1))


@composite("functional")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:  # fmt: skip
    """Returns the rows of the table `weight` (rows, width) at the indices `input` (any shape, int64 or int32).

    Row `padding_idx` gets no gradient. `scale_grad_by_freq` divides a row's gradient by the number of times it is used.
    `max_norm` first scales down, in place, the used rows whose norm is larger. With `sparse`, the gradient of the table
    is a sparse tensor that stores the rows which were looked up (on the CPU; elsewhere it is dense).

    Raises:
        IndexError: If an index is out of range.

    >>> torch.nn.functional.embedding(torch.tensor([1, 1]), torch.tensor([[0.0], [5.0]]))
    tensor([[5.],
            [5.]])
    """
    if padding_idx is None:
        padding_idx = -1
    else:
        count = weight._array.shape[0]
        if not -count <= padding_idx < count:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx = as_integer(padding_idx, "padding_idx") % count
    if max_norm is not None:
        with no_grad():
            embedding_renorm_(weight.detach(), input, max_norm, norm_type)  # not even tangents know of it
    if sparse:
        return looked_up(weight, input, padding_idx, scale_grad_by_freq, True)
    return embedding_row(weight, input, padding_idx, scale_grad_by_freq)
