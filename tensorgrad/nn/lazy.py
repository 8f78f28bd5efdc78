"""Layers that infer their input size from their first input.

Until then their parameters are uninitialized. The first call gives them shapes and initial values, and turns the layer
into an ordinary one by changing its class.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import batchnorm, conv, linear
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import is_lazy
from tensorgrad.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from tensorgrad.tensor import Tensor


class _MethodOf:
    """A method used as a hook of its own module, through a weak reference. It is pickled as the method."""

    def __init__(self, module: Module, name: str):
        self.module, self.name = weakref.ref(module), name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module(), self.name)(*args, **kwargs)

    def __reduce__(self) -> tuple:
        return getattr, (self.module(), self.name)

    def __deepcopy__(self, memo: dict) -> _MethodOf:
        return _MethodOf(copy.deepcopy(self.module(), memo), self.name)  # type: ignore[arg-type]


class LazyModuleMixin(Module):
    """Mixin for lazy layers: a subclass of it and of the layer's class defines `initialize_parameters(input)`.

    Its `__init__` creates an `tensorgrad.nn.UninitializedParameter` where a shape is not known yet, and
    `initialize_parameters` materializes them. The class of the layer then becomes `cls_to_become`.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(_MethodOf(self, "_lazy_load_hook"))
        self._initialize_hook = self.register_forward_pre_hook(_MethodOf(self, "_infer_parameters"), with_kwargs=True)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in self._own_state().items():
            destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materializes the parameters for the given arguments of `forward`."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Returns whether any parameter or buffer of this layer has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        mine: Any
        for name, mine in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(mine) and isinstance(given, Tensor) and not is_lazy(given):
                mine.materialize(given.shape)

    def _infer_parameters(self, module: Any, args: tuple, kwargs: Any = None) -> None:
        """The hook before the first call: initializes the layer and turns it into an ordinary one."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        module._forward_pre_hooks_with_kwargs.pop(module._initialize_hook.id, None)
        for handle in ("_initialize_hook", "_load_hook"):
            getattr(module, handle).remove()
            delattr(module, handle)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, linear.Linear):
    """A `tensorgrad.nn.Linear` that takes `in_features` from the first input.

    Args:
        out_features: the size of the last dimension of the result.
        bias: whether there is a bias.

    >>> layer = torch.nn.LazyLinear(4)
    >>> layer(torch.zeros(2, 3)).shape, layer
    (torch.Size([2, 4]), Linear(in_features=3, out_features=4, bias=True))
    """

    cls_to_become = linear.Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws new initial values, if the shapes are known."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes `in_features` from the last dimension of `input`."""
        features = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = features
            with torch.no_grad():
                _materialize(self, weight=(self.out_features, features), bias=(self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:  # the weights were loaded
            if features != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {features} is not equal to in_features from self.weight: "
                    f"{self.weight.shape[-1]}"
                )
            self.in_features = features


def _materialize(module: Any, **shapes: tuple) -> None:
    """Gives the named parameters and buffers, those that are not None, their shapes."""
    for name, shape in shapes.items():
        value = getattr(module, name)
        if value is not None:
            value.materialize(shape)


class _LazyConvXdMixin(LazyModuleMixin, conv._ConvNd):
    """A convolution that takes `in_channels` from the first input; the other arguments are the layer's own."""

    def _defer(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws new initial values, if the shapes are known."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Takes `in_channels` from the channels of `input`."""
        if not self.has_uninitialized_params():
            return
        rank = self.dimensions + 1
        if input.dim() not in (rank, rank + 1):
            raise RuntimeError(
                f"Expected {rank}D (unbatched) or {rank + 1}D (batched) input to {type(self).__name__}, but got input "
                f"of size: {input.shape}"
            )
        channels, others, groups = input.shape[-rank], self.out_channels, self.groups
        self.in_channels = channels
        if channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        filters = (channels, others // groups) if self.transposed else (others, channels // groups)
        _materialize(self, weight=(*filters, *self.kernel_size), bias=(others,))
        self.reset_parameters()


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, bias=False, padding_mode=padding_mode)
        self._defer(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, bias=False, dilation=dilation,
            padding_mode=padding_mode,
        )  # fmt: skip
        self._defer(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, conv.Conv1d):
    """A `tensorgrad.nn.Conv1d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyConv1d(8, kernel_size=3)
    >>> y = layer(torch.zeros(1, 3, 32))
    >>> layer
    Conv1d(3, 8, kernel_size=(3,), stride=(1,))
    """

    cls_to_become = conv.Conv1d


class LazyConv2d(_LazyConv, conv.Conv2d):
    """A `tensorgrad.nn.Conv2d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyConv2d(8, kernel_size=3)
    >>> layer(torch.zeros(1, 3, 32, 32)).shape, layer
    (torch.Size([1, 8, 30, 30]), Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1)))
    """

    cls_to_become = conv.Conv2d


class LazyConv3d(_LazyConv, conv.Conv3d):
    """A `tensorgrad.nn.Conv3d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyConv3d(8, kernel_size=3)
    >>> y = layer(torch.zeros(1, 3, 8, 8, 8))
    >>> layer
    Conv3d(3, 8, kernel_size=(3, 3, 3), stride=(1, 1, 1))
    """

    cls_to_become = conv.Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, conv.ConvTranspose1d):
    """A `tensorgrad.nn.ConvTranspose1d` that takes its input channels from the first input.

    >>> layer = torch.nn.LazyConvTranspose1d(8, kernel_size=3)
    >>> y = layer(torch.zeros(1, 3, 8))
    >>> layer
    ConvTranspose1d(3, 8, kernel_size=(3,), stride=(1,))
    """

    cls_to_become = conv.ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, conv.ConvTranspose2d):
    """A `tensorgrad.nn.ConvTranspose2d` that takes its input channels from the first input.

    >>> layer = torch.nn.LazyConvTranspose2d(8, kernel_size=3)
    >>> y = layer(torch.zeros(1, 3, 8, 8))
    >>> layer
    ConvTranspose2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = conv.ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, conv.ConvTranspose3d):
    """A `tensorgrad.nn.ConvTranspose3d` that takes its input channels from the first input.

    >>> layer = torch.nn.LazyConvTranspose3d(8, kernel_size=3)
    >>> y = layer(torch.zeros(1, 3, 4, 4, 4))
    >>> layer
    ConvTranspose3d(3, 8, kernel_size=(3, 3, 3), stride=(1, 1, 1))
    """

    cls_to_become = conv.ConvTranspose3d


class _LazyNormBase(LazyModuleMixin, batchnorm._NormBase):
    """A norm that takes `num_features` from the first input's channels; the other arguments are the layer's own."""

    def _defer(self, affine: bool, track: bool, bias: bool, device: Any, dtype: Any) -> None:
        self.affine, self.track_running_stats = affine, track
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = torch.zeros((), dtype=torch.int64, device=device)

    def reset_parameters(self) -> None:
        """Sets initial values, if the shapes are known."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes `num_features` from the second dimension of `input`."""
        if self.has_uninitialized_params():
            self.num_features = n = input.shape[1]
            _materialize(self, weight=(n,), bias=(n,), running_mean=(n,), running_var=(n,))
            self.reset_parameters()


class _LazyBatchNorm(_LazyNormBase):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, bias=False)
        self._defer(affine, track_running_stats, bias, device, dtype)


class LazyBatchNorm1d(_LazyBatchNorm, batchnorm.BatchNorm1d):
    """A `tensorgrad.nn.BatchNorm1d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyBatchNorm1d()
    >>> y = layer(torch.zeros(4, 3))
    >>> layer.num_features, layer.running_mean
    (3, tensor([0., 0., 0.]))
    """

    cls_to_become = batchnorm.BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, batchnorm.BatchNorm2d):
    """A `tensorgrad.nn.BatchNorm2d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyBatchNorm2d()
    >>> y = layer(torch.zeros(4, 3, 5, 5))
    >>> layer.num_features
    3
    """

    cls_to_become = batchnorm.BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, batchnorm.BatchNorm3d):
    """A `tensorgrad.nn.BatchNorm3d` without its first argument: channels come from the first input.

    >>> layer = torch.nn.LazyBatchNorm3d()
    >>> y = layer(torch.zeros(4, 3, 5, 5, 5))
    >>> layer.num_features
    3
    """

    cls_to_become = batchnorm.BatchNorm3d


# PyTorch's lazy instance norms have the defaults of batch norm.
class LazyInstanceNorm1d(_LazyBatchNorm, batchnorm.InstanceNorm1d):
    """A `tensorgrad.nn.InstanceNorm1d` that takes the channels from its first input. It is affine and keeps
    statistics by default.

    >>> layer = torch.nn.LazyInstanceNorm1d()
    >>> y = layer(torch.zeros(4, 3, 5))
    >>> layer.num_features
    3
    """

    cls_to_become = batchnorm.InstanceNorm1d


class LazyInstanceNorm2d(_LazyBatchNorm, batchnorm.InstanceNorm2d):
    """A `tensorgrad.nn.InstanceNorm2d` that takes the channels from its first input. It is affine and keeps
    statistics by default.

    >>> layer = torch.nn.LazyInstanceNorm2d()
    >>> y = layer(torch.zeros(4, 3, 5, 5))
    >>> layer.num_features
    3
    """

    cls_to_become = batchnorm.InstanceNorm2d


class LazyInstanceNorm3d(_LazyBatchNorm, batchnorm.InstanceNorm3d):
    """A `tensorgrad.nn.InstanceNorm3d` that takes the channels from its first input. It is affine and keeps
    statistics by default.

    >>> layer = torch.nn.LazyInstanceNorm3d()
    >>> y = layer(torch.zeros(4, 3, 5, 5, 5))
    >>> layer.num_features
    3
    """

    cls_to_become = batchnorm.InstanceNorm3d
