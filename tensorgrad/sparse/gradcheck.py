"""Numerical checks of the gradients of functions of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tensorgrad.ops.create import ones
from tensorgrad.ops.sparse.convert import as_layout_of, mask_, to_dense
from tensorgrad.ops.sparse_parts import coalesce, values, with_values
from tensorgrad.storage.sparse import COOArray, SparseArray
from tensorgrad.tensor import Tensor


def as_sparse_gradcheck(gradcheck: Callable) -> Callable:
    """Makes of a `gradcheck` function one that accepts functions of sparse tensors, and that return them.

    With `masked=True`, only the stored elements are varied and compared; otherwise all elements are.

    >>> gradcheck = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
    >>> x = torch.tensor([[0.0, 2.0]], dtype=torch.float64).to_sparse().requires_grad_()
    >>> gradcheck(lambda x: x.to_dense(), [x], masked=True)
    True
    """

    @wraps(gradcheck)
    def checked(function: Callable, inputs: Any, **options: Any) -> bool:
        return gradcheck(*densely(function, inputs, options.pop("masked", False)), **options)

    return checked


def is_sparse(x: Any) -> bool:
    """Returns whether this is a tensor in a sparse layout."""
    return isinstance(x, Tensor) and isinstance(x._array, SparseArray)


def densely(function: Callable, inputs: Any, masked: bool) -> tuple[Callable, tuple]:
    """A function of dense tensors that computes the same as one of sparse tensors, and its inputs.

    With `masked`, a sparse input is replaced by its values, otherwise by all of its elements.
    """
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    rebuilt: list[Any] = []  # for each argument, how it is made of a dense one that is varied
    varied: list[Any] = []
    for given in inputs:
        if not is_sparse(given) or not given.requires_grad:
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
        shown = [to_dense(r, masked_grad=masked) if is_sparse(r) else r for r in ([results] if alone else results)]
        return shown[0] if alone else tuple(shown)

    return dense_function, tuple(varied)


def _all_stored(v: Tensor, pattern: Tensor) -> Tensor:
    """A dense tensor as a sparse one that stores every element, zeros too."""
    full = as_layout_of(ones(v.shape, dtype=v.dtype), pattern)
    return mask_(v, full)
