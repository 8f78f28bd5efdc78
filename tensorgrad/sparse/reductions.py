"""Sums and softmax of sparse tensors, and gradcheck with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tensorgrad.errors import wrap_dim, wrap_dims
from tensorgrad.ops import reduce as dense_reductions
from tensorgrad.ops.copy import to
from tensorgrad.ops.sparse.convert import to_dense
from tensorgrad.ops.sparse.parts import coalesce, values, with_values
from tensorgrad.ops.sparse.reduce import softmax_, sparse_sum_
from tensorgrad.storage.sparse import COOArray, SparseArray
from tensorgrad.tensor import Tensor


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a COO tensor over dimensions; its gradient has the tensor's pattern.

    Dense if no sparse dimension is left, else sparse.

    >>> import tensorgrad as torch
    >>> torch.sparse.sum(torch.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse(), 0).to_dense()
    tensor([3., 6.])
    """
    input = input if dtype is None else to(input, dtype)
    if not isinstance(input._array, COOArray):
        return dense_reductions.sum(input, dim) if dim is not None else dense_reductions.sum(input)
    dims = () if dim is None else wrap_dims(dim if isinstance(dim, tuple | list) else (dim,), input.dim())
    if not dims:
        return dense_reductions.sum(values(coalesce(input)))
    return sparse_sum_(input, tuple(dims))


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax along a dimension, among the stored elements: those that are not stored count as -inf.

    >>> import tensorgrad as torch
    >>> torch.sparse.softmax(torch.tensor([[0.0, 2.0], [1.0, 1.0]]).to_sparse(), 1).values()
    tensor([1.0000, 0.5000, 0.5000])
    """
    return _softmax(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `sparse.softmax`.

    >>> import tensorgrad as torch
    >>> torch.sparse.log_softmax(torch.tensor([[0.0, 2.0], [1.0, 1.0]]).to_sparse(), 1).values()
    tensor([ 0.0000, -0.6931, -0.6931])
    """
    return _softmax(input, dim, dtype, True)


def _softmax(input: Tensor, dim: int, dtype: Any, log: bool) -> Tensor:
    if not isinstance(input._array, COOArray):
        raise NotImplementedError(f"sparse.softmax: expected a COO tensor, got layout {input.layout}")
    input = input if dtype is None else to(input, dtype)
    return softmax_(input, wrap_dim(dim, input.dim()), log)


def as_sparse_gradcheck(gradcheck: Callable) -> Callable:
    """Makes of a `gradcheck` function one that accepts functions of sparse tensors, and that return them.

    With `masked=True`, only the stored elements are varied and compared; otherwise all elements are.

    >>> import tensorgrad as torch
    >>> gradcheck = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
    >>> x = torch.tensor([[0.0, 2.0]], dtype=torch.float64).to_sparse().requires_grad_()
    >>> gradcheck(lambda x: x.to_dense(), [x], masked=True)
    True
    """

    @wraps(gradcheck)
    def checked(function: Callable, inputs: Any, **options: Any) -> bool:
        masked = options.pop("masked", False)
        inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        rebuilt: list[Any] = []  # for each argument, how it is made of a dense one that is varied
        varied: list[Any] = []
        for given in inputs:
            if not isinstance(given, Tensor) or not isinstance(given._array, SparseArray) or not given.requires_grad:
                rebuilt.append(None)
                varied.append(given)
                continue
            pattern = given.detach()
            pattern = coalesce(pattern) if isinstance(pattern._array, COOArray) else pattern
            if masked:
                rebuilt.append(lambda v, pattern=pattern: with_values(pattern, v))
                varied.append(values(pattern).clone().requires_grad_())
            else:
                rebuilt.append(lambda v, pattern=pattern: _all_stored(v, pattern))
                varied.append(to_dense(pattern).requires_grad_())

        def dense_function(*arguments: Any) -> Any:
            made = [a if make is None else make(a) for make, a in zip(rebuilt, arguments)]
            results = function(*made)
            alone = isinstance(results, Tensor)
            shown = [_shown(r, masked) for r in ([results] if alone else results)]
            return shown[0] if alone else tuple(shown)

        return gradcheck(dense_function, varied, **options)

    return checked


def _all_stored(v: Tensor, pattern: Tensor) -> Tensor:
    """A dense tensor as a sparse one that stores every element, zeros too."""
    from tensorgrad.ops.create import ones
    from tensorgrad.ops.sparse.convert import as_layout_of, mask_

    full = as_layout_of(ones(v.shape, dtype=v.dtype), pattern)
    return mask_(v, full)


def _shown(result: Any, masked: bool) -> Any:
    if not isinstance(result, Tensor) or not isinstance(result._array, SparseArray):
        return result
    return to_dense(result, masked_grad=masked)
