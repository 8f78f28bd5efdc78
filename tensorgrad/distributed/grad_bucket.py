"""`GradBucket`: the gradients that a communication hook reduces together; and the names of two such hooks."""

from __future__ import annotations

from enum import Enum
from typing import Any

__all__ = ["BuiltinCommHookType", "GradBucket"]


class BuiltinCommHookType(Enum):
    """The hooks that PyTorch has written in C++: the mean, and the mean of gradients that travel as float16.

    >>> import tensorgrad.distributed as dist
    >>> [kind.name for kind in dist.BuiltinCommHookType]
    ['ALLREDUCE', 'FP16_COMPRESS']
    """

    ALLREDUCE = 0
    FP16_COMPRESS = 1


class GradBucket:
    """Gradients of some parameters, behind each other in one flat tensor: what a communication hook receives.

    >>> import tensorgrad.distributed as dist
    >>> weight = torch.ones(2, 3)
    >>> bucket = dist.GradBucket(0, torch.zeros(6), [weight.shape], [weight], True)
    >>> bucket.gradients()[0].shape
    torch.Size([2, 3])
    """

    def __init__(self, index: int, buffer: Any, shapes: list[Any], parameters: list[Any], is_last: bool) -> None:
        self._index, self._buffer, self._shapes = index, buffer, shapes
        self._parameters, self._is_last = parameters, is_last

    def index(self) -> int:
        """Returns the number of the bucket: the lowest one is reduced first."""
        return self._index

    def buffer(self) -> Any:
        """Returns the flat tensor of all gradients."""
        return self._buffer

    def gradients(self) -> list[Any]:
        """Returns the gradients, as views of the flat tensor in the parameters' shapes."""
        parts = self._buffer.split([parameter.numel() for parameter in self._parameters])
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]

    def parameters(self) -> list[Any]:
        """Returns the parameters, in the order of their gradients."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Returns whether this is the last bucket to be reduced in a backward pass."""
        return self._is_last

    def set_buffer(self, buffer: Any) -> None:
        """Replaces the flat tensor by another one of the same size."""
        self._buffer = buffer
