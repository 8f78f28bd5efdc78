"""Batch norm and instance norm: normalization with optional running statistics."""

from __future__ import annotations

import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.nn.normalization import ScaledNorm
from tensorgrad.tensor import Tensor


class _NormBase(ScaledNorm):
    _version = 2  # num_batches_tracked is part of the state since version 2
    ranks: tuple[int, ...]  # the numbers of dimensions that the input may have

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make(num_features, affine, bias, device, dtype)
        track = track_running_stats
        zeros, ones = torch.zeros, torch.ones
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if track else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if track else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=torch.int64, device=device) if track else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Resets the running statistics: means to zero, variances to one, and the batch count to zero."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Sets the weight to one and the bias to zero, and resets the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            expected = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *args: Any) -> None:
        key = prefix + "num_batches_tracked"
        if (local_metadata.get("version") or 0) < 2 and self.track_running_stats and key not in state_dict:
            counter = self.num_batches_tracked
            known = counter is not None and not counter.is_meta
            state_dict[key] = counter if known else torch.zeros((), dtype=torch.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = self.momentum
        training, mean, var = self.training, self.running_mean, self.running_var
        if training:
            if not self.track_running_stats:
                mean = var = None
            elif self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if factor is None:  # the plain mean over all batches
                    factor = 1.0 / float(self.num_batches_tracked)
        else:
            training = mean is None and var is None
        return self._normalize(input, mean, var, training, 0.0 if factor is None else factor)

    def _normalize(self, input: Tensor, mean: Any, var: Any, training: bool, factor: float) -> Tensor:
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L): mean and variance over N and L of each channel, see `BatchNorm2d`.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance, so that nothing is divided by zero.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, the batch's are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input does not have two or three dimensions.

    >>> layer = torch.nn.BatchNorm1d(2)
    >>> layer(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]], grad_fn=<NativeBatchNormBackward0>)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x - mean) / √(var + eps) · weight + bias, with mean and variance over all dimensions but C of (N, C, H, W).

    In training, mean and variance are those of the batch, and the running statistics move towards them. In evaluation,
    the running statistics are used (Ioffe and Szegedy, 2015).

    Args:
        num_features: C, the number of channels.
        eps: added to the variance.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, the batch's are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input does not have four dimensions.

    >>> norm = torch.nn.BatchNorm2d(3)
    >>> norm(torch.zeros(2, 3, 4, 4)).shape, norm.num_batches_tracked
    (torch.Size([2, 3, 4, 4]), tensor(1))
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (N, C, D, H, W): mean and variance over all dimensions but C, see `BatchNorm2d`.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance, so that nothing is divided by zero.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, the batch's are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input does not have five dimensions.

    >>> out = torch.nn.BatchNorm3d(1)(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1, 1))
    >>> out.flatten().detach()
    tensor([-1.0000,  1.0000])
    """

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (N, C, *) with mean and variance over the batches of all processes.

    The batches may have different sizes; the result is that of `BatchNorm2d` for all of them together. The gradients of
    weight and bias are those of this process's part. In evaluation, or without a process group, it is ordinary batch
    norm.

    Args:
        process_group: the group; the default one if None.
        others: those of `BatchNorm2d`.

    Raises:
        ValueError: the input has fewer than two dimensions or no channels.

    >>> torch.nn.SyncBatchNorm(2)(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]], grad_fn=<NativeBatchNormBackward0>)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def _normalize(self, input: Tensor, mean: Any, var: Any, training: bool, factor: float) -> Tensor:
        if self.training:
            from tensorgrad.nn.sync_batchnorm import group_to_sync, sync_batch_norm  # loads torch.distributed

            group = group_to_sync(self.process_group)
            if group is not None:
                return sync_batch_norm(input, self.weight, self.bias, mean, var, self.eps, factor, group)
        return super()._normalize(input, mean, var, training, factor)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replaces every batch norm in `module` by a `SyncBatchNorm` with the same parameters and buffers.

        Returns:
            `module`, or its replacement if it is itself a batch norm.

        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        >>> type(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)[1]).__name__
        'SyncBatchNorm'
        """
        found: Any = module
        if isinstance(found, _BatchNorm):
            bias = found.bias is not None
            made = SyncBatchNorm(
                found.num_features, found.eps, found.momentum, found.affine, found.track_running_stats, process_group,
                bias=bias,
            )  # fmt: skip
            if found.affine:
                made.weight, made.bias = found.weight, found.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(made, name, getattr(found, name))
            made.training = found.training
            module = made
        for name, child in found.named_children():
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing: list,
        unexpected: list,
        errors: list,
    ) -> None:
        if local_metadata.get("version") is None and not self.track_running_stats:
            stale = [key for name in ("running_mean", "running_var") if (key := prefix + name) in state_dict]
            if stale:
                names, kind = " and ".join(f'"{key}"' for key in stale), type(self).__name__
                errors.append(
                    f"Unexpected running stats buffer(s) {names} for {kind} with track_running_stats=False. If "
                    "state_dict is a checkpoint saved before 0.4.0, this may be expected because "
                    f"{kind} does not track running stats by default since 0.4.0. Please remove these keys from "
                    "state_dict. If the running stats are actually needed, instead set track_running_stats=True in "
                    f"{kind} to enable them. See the documentation of {kind} for details."
                )
                for key in stale:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        unbatched = input.ndim == self.ranks[0]
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features:
            dim = 0 if unbatched else 1
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: "
                    f"{channels}."
                )
            warnings.warn(
                f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing "
                "in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        out = F.instance_norm(
            input.unsqueeze(0) if unbatched else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of (N, C, L) or (C, L): mean and variance over L, see `InstanceNorm2d`.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance, so that nothing is divided by zero.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, each sample's own are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input has another number of dimensions, or, with `affine`, another number of channels.

    >>> torch.nn.InstanceNorm1d(2)(torch.tensor([[1.0, 3.0], [10.0, 30.0]]))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """(x - mean) / √(var + eps) · weight + bias, over H and W of each channel of each sample (Ulyanov et al., 2016).

    The input is (N, C, H, W) or (C, H, W), and so is the result.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance, so that nothing is divided by zero.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, each sample's own are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input has another number of dimensions, or, with `affine`, another number of channels.

    >>> torch.nn.InstanceNorm2d(1)(torch.tensor([[[[1.0, 3.0]]]]))
    tensor([[[[-1.0000,  1.0000]]]])
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of (N, C, D, H, W) or (C, D, H, W): mean and variance over D, H and W, see `InstanceNorm2d`.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance, so that nothing is divided by zero.
        momentum: the weight of a new batch in the running statistics; `None` averages all batches equally.
        affine: whether there are a weight and a bias, one scalar per channel each.
        track_running_stats: whether to keep running statistics; without them, each sample's own are always used.
        bias: whether there is a bias.

    Raises:
        ValueError: the input has another number of dimensions, or, with `affine`, another number of channels.

    >>> torch.nn.InstanceNorm3d(1)(torch.tensor([1.0, 3.0]).view(1, 1, 1, 2))
    tensor([[[[-1.0000,  1.0000]]]])
    """

    ranks = (4, 5)
