"""Support for einops on tensors, and einops layers as modules.

einops supports a library through a subclass of its `AbstractBackend`. Its backend for `torch` works where `torch` is
tensorgrad (`tensorgrad.compat`, `python -m tensorgrad.run`); `register` adds one for `import tensorgrad`.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import tensorgrad
from tensorgrad import nn
from tensorgrad.tensor import Tensor


@functools.cache
def register() -> Any:
    """Makes `einops.rearrange` and the other einops functions accept tensors.

    Returns:
        The backend. Its method `layers()` returns the modules `Rearrange`, `Reduce` and `EinMix`.

    Raises:
        ImportError: If einops is not installed.

    >>> from tensorgrad.utils import einops_backend
    >>> backend = einops_backend.register()
    >>> from einops import rearrange  # needs the package einops
    >>> rearrange(torch.arange(6).view(2, 3), "a b -> b a")
    tensor([[0, 3],
            [1, 4],
            [2, 5]])
    >>> backend.layers().Reduce("a b -> a", "max")(torch.arange(6).view(2, 3))
    tensor([2, 5])
    """
    try:
        from einops._backends import AbstractBackend
    except ImportError as error:
        raise ImportError("einops is not installed: pip install einops", name="einops") from error

    # einops looks for its backends among the subclasses of AbstractBackend.
    class TensorgradBackend(_Operations, AbstractBackend):
        framework_name = "tensorgrad"

    return TensorgradBackend()


class _Operations:
    """The operations that einops needs from a library; the rest it does itself, on shapes."""

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return tensorgrad.from_numpy(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return tensorgrad.arange(start, stop)

    def transpose(self, x: Tensor, axes: Any) -> Tensor:
        return x.permute(axes)

    def reduce(self, x: Tensor, operation: str, axes: Any) -> Tensor:
        if operation in ("max", "min"):
            return getattr(x, f"a{operation}")(axes)
        if operation != "prod":
            return getattr(x, operation)(tuple(axes))
        for axis in sorted(axes, reverse=True):  # `prod` reduces one dimension at a time
            x = x.prod(axis)
        return x

    def stack_on_zeroth_dimension(self, tensors: list) -> Tensor:
        return tensorgrad.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict) -> Tensor:
        """Returns a view with new dimensions of the given lengths; nothing is copied."""
        lengths = [-1] * n_axes
        for position, length in pos2len.items():
            x, lengths[position] = x.unsqueeze(position), length
        return x.expand(lengths)

    def tile(self, x: Tensor, repeats: Any) -> Tensor:
        return x.repeat(repeats)

    def concat(self, tensors: list, axis: int) -> Tensor:
        return tensorgrad.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return tensorgrad.einsum(pattern, *x)

    def layers(self) -> SimpleNamespace:
        return _layers()


@functools.cache
def _layers() -> SimpleNamespace:
    from einops.layers import RearrangeMixin, ReduceMixin
    from einops.layers._einmix import _EinmixMixin

    class Rearrange(RearrangeMixin, nn.Module):
        """`einops.rearrange` with a fixed pattern, as a module."""

        def forward(self, input: Tensor) -> Tensor:
            return self._apply_recipe(input)

    class Reduce(ReduceMixin, nn.Module):
        """`einops.reduce` with a fixed pattern and reduction, as a module."""

        def forward(self, input: Tensor) -> Tensor:
            return self._apply_recipe(input)

    class EinMix(_EinmixMixin, nn.Module):
        """`einops.einsum` of the input with a learned weight, plus an optional bias, as a module."""

        def _create_parameters(self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float):
            self.weight = nn.Parameter(tensorgrad.empty(weight_shape).uniform_(-weight_bound, weight_bound))
            self.bias = None
            if bias_shape is not None:
                self.bias = nn.Parameter(tensorgrad.empty(bias_shape).uniform_(-bias_bound, bias_bound))

        def _create_rearrange_layers(self, before: str | None, before_sizes: Any, after: str | None, after_sizes: Any):
            self.before = nn.Identity() if before is None else Rearrange(before, **before_sizes)
            self.after = nn.Identity() if after is None else Rearrange(after, **after_sizes)

        def forward(self, input: Tensor) -> Tensor:
            result = tensorgrad.einsum(self.einsum_pattern, self.before(input), self.weight)
            return self.after(result if self.bias is None else result + self.bias)

    return SimpleNamespace(Rearrange=Rearrange, Reduce=Reduce, EinMix=EinMix)
