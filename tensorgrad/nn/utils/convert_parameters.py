"""Conversion of parameters to one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import tensorgrad as torch
from tensorgrad.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenates the parameters, flattened, to one vector.

    >>> torch.nn.utils.parameters_to_vector([torch.ones(2), torch.zeros(1, 1)])
    tensor([1., 1., 0.])
    """
    return torch.cat([parameter.reshape(-1) for parameter in _on_one_device(parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes the parameters views of consecutive parts of a vector.

    Raises:
        TypeError: `vec` is not a tensor.

    >>> a, b = torch.zeros(2), torch.zeros(1, 1)
    >>> torch.nn.utils.vector_to_parameters(torch.tensor([1.0, 2.0, 3.0]), [a, b])
    >>> a, b
    (tensor([1., 2.]), tensor([[3.]]))
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {torch.typename(vec)}")
    start = 0
    for parameter in _on_one_device(parameters):
        stop = start + parameter.numel()
        parameter.data = vec[start:stop].view_as(parameter).data
        start = stop


def _on_one_device(parameters: Iterable[Tensor]) -> list[Tensor]:
    found = list(parameters)
    if len({parameter.device for parameter in found}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return found
