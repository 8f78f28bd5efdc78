"""Helpers of the distributions: broadcasting parameters, converting probabilities and logits, lazy properties."""

from __future__ import annotations

from numbers import Number

import tensorgrad as torch
from tensorgrad.tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def broadcast_all(*values) -> tuple[Tensor, ...]:
    """Broadcasts tensors and scalars to tensors of one shape; scalars get the dtype and device of the first tensor.

    Raises:
        ValueError: a value is neither a tensor nor a scalar.

    >>> from tensorgrad.distributions.utils import broadcast_all
    >>> broadcast_all(torch.tensor([1.0, 2.0]), 3)
    (tensor([1., 2.]), tensor([3., 3.]))
    """
    if not all(isinstance(v, Tensor | Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = torch.get_default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    return broadcast(*(v if isinstance(v, Tensor) else torch.tensor(v, dtype=dtype, device=device) for v in values))


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Does what `torch.broadcast_tensors` does, at no cost in the common case of equal shapes."""
    shape = tensors[0].shape
    return tensors if all(t.shape == shape for t in tensors) else torch.broadcast_tensors(*tensors)


def standard_normal(shape, dtype, device) -> Tensor:
    """Returns samples of the standard normal distribution."""
    return torch.empty(shape, dtype=dtype, device=device).normal_()


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """Sums over the last `dims` dimensions."""
    return value if dims == 0 else value.reshape(*value.shape[: value.dim() - dims], -1).sum(-1)


_standard_normal, _sum_rightmost = standard_normal, sum_rightmost  # PyTorch's names, which libraries import


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Converts log odds (`is_binary`), or unnormalized log probabilities along the last dimension, to probabilities.

    >>> torch.distributions.utils.logits_to_probs(torch.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, -1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamps probabilities to be at least the dtype's epsilon away from 0 and 1.

    >>> torch.distributions.utils.clamp_probs(torch.tensor([0.0, 0.5]))
    tensor([1.1921e-07, 5.0000e-01])
    """
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Converts probabilities to log odds (`is_binary`) or log probabilities, which are finite even for 0 and 1.

    >>> torch.distributions.utils.probs_to_logits(torch.tensor([0.5]), is_binary=True)
    tensor([0.])
    """
    probs = clamp_probs(probs)
    return torch.log(probs) - torch.log1p(-probs) if is_binary else torch.log(probs)


class lazy_property:
    """A property that is computed on first access, with gradients recorded, and stored in the instance.

    >>> from tensorgrad.distributions.utils import lazy_property
    >>> class Answer:
    ...     @lazy_property
    ...     def value(self):
    ...         print("computing")
    ...         return 42
    >>> answer = Answer()
    >>> answer.value + answer.value
    computing
    84
    """

    def __init__(self, wrapped) -> None:
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def _triangle(n: int, diag: int, device) -> Tensor:
    """Returns an n × n mask that is True on and below the diagonal number `diag`."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril(diag)


def _triangle_size(n: int, diag: int) -> int:
    """Returns the number of elements on and below the diagonal number `diag` of an n × n matrix."""
    if diag >= 0:  # all elements but those above the diagonal, which form the transposed triangle
        return n * n - _triangle_size(n, -diag - 1)
    rows = max(n + diag, 0)
    return rows * (rows + 1) // 2


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Returns the elements on and below a diagonal, row by row: (..., n, n) to (..., m).

    Raises:
        ValueError: the diagonal is outside the matrix.

    >>> torch.distributions.utils.tril_matrix_to_vec(torch.arange(4).reshape(2, 2))
    tensor([0, 2, 3])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _triangle(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Inverts `tril_matrix_to_vec`, with zeros elsewhere: (..., m) to (..., n, n).

    Raises:
        ValueError: no square matrix has this number of elements there.

    >>> torch.distributions.utils.vec_to_tril_matrix(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 0.],
            [2., 3.]])
    """
    size, n = vec.shape[-1], abs(diag)
    while _triangle_size(n, diag) < size:
        n += 1
    if _triangle_size(n, diag) != size:
        raise ValueError(
            f"The size of last dimension is {size} which cannot be expressed as the lower triangular part of a square "
            "D x D matrix."
        )
    matrix = vec.new_zeros((*vec.shape[:-1], n, n))
    matrix[..., _triangle(n, diag, vec.device)] = vec
    return matrix
