"""Modules that round to what integers stand for, and whose gradients pass as if they did not: for training."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.ao.quantization.observer import (
    FixedQParamsObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    with_args,
)
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor


class FakeQuantizeBase(Module):
    """A fake quantization that can be switched on and off, and whose observer can."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Rounds from now on."""
        self.fake_quant_enabled[0] = int(enabled)

    def disable_fake_quant(self) -> None:
        """Does not round from now on."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Adapts the scale to what passes from now on."""
        self.observer_enabled[0] = int(enabled)

    def disable_observer(self) -> None:
        """Keeps the scale from now on."""
        self.enable_observer(False)

    with_args = classmethod(with_args)


class FakeQuantize(FakeQuantizeBase):
    """Rounds with the scale and zero point that an observer chooses.

    Args:
        observer: the class of the observer.
        quant_min, quant_max: the range of the integers, if it is not that of the dtype.
        observer_kwargs: what else the observer is given.

    >>> from tensorgrad.ao.quantization import FakeQuantize
    >>> FakeQuantize(dtype=torch.quint8)(torch.tensor([0.0, 0.4, 255.0]))
    tensor([  0.,   0., 255.])
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ):
        super().__init__()
        limits = {} if quant_min is None and quant_max is None else {"quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(is_dynamic=is_dynamic, **limits, **observer_kwargs)
        made = self.activation_post_process
        self.quant_min, self.quant_max, self.dtype, self.qscheme = (
            made.quant_min, made.quant_max, made.dtype, made.qscheme
        )  # fmt: skip
        self.ch_axis = getattr(made, "ch_axis", -1)
        self.is_per_channel = "channel" in self.qscheme.name
        self.register_buffer("scale", torch.tensor([1.0]))
        self.register_buffer("zero_point", torch.tensor([0], dtype=torch.int32))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Returns the scales and zero points."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        """Returns the rounded values."""
        if self.observer_enabled[0]:
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            self.scale, self.zero_point = scale, zero_point.to(self.zero_point.dtype)
        if not self.fake_quant_enabled[0]:
            return X
        given = self.scale, self.zero_point
        if self.is_per_channel:
            return torch.fake_quantize_per_channel_affine(X, *given, self.ch_axis, self.quant_min, self.quant_max)
        return torch.fake_quantize_per_tensor_affine(X, *given, self.quant_min, self.quant_max)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):  # as many channels as were seen
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, torch.empty_like(state_dict[f"{prefix}{name}"]))
        super()._load_from_state_dict(state_dict, prefix, *args)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds with a scale and a zero point that were given: those of a FixedQParamsObserver."""

    def __init__(self, observer: Any):
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(f"{type(self).__name__}'s observer must be a FixedQParamsObserver")
        self.scale, self.zero_point = self.activation_post_process.calculate_qparams()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Returns the scale and the zero point."""
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, qscheme={self.qscheme}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """`FakeQuantize` with an observer of moving averages, all in one function.

    That chooses the scale in its own way: symmetric integers reach to both ends, so that -128 and 127 stand for the
    largest numbers.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ):
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        if not isinstance(
            self.activation_post_process, MovingAverageMinMaxObserver | MovingAveragePerChannelMinMaxObserver
        ):
            raise AssertionError("Fused observer+fake_quant module only works with MovingAverageMinMaxObserver")
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.long))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.long))
        self.is_symmetric_quant = self.qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric)

    def forward(self, X: Tensor) -> Tensor:
        """Returns the rounded values."""
        seen = self.activation_post_process
        return torch.fused_moving_avg_obs_fake_quant(
            X, self.observer_enabled, self.fake_quant_enabled, seen.min_val, seen.max_val, self.scale, self.zero_point,
            seen.averaging_constant, seen.quant_min, seen.quant_max, self.ch_axis, self.is_per_channel,
            self.is_symmetric_quant,
        )  # fmt: skip

    def extra_repr(self) -> str:
        seen = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, quant_min={seen.quant_min}, "
            f"quant_max={seen.quant_max}, qscheme={self.qscheme}, reduce_range={seen.reduce_range}"
        )


default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8,
    qscheme=torch.per_tensor_affine, reduce_range=True,
)  # fmt: skip
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
    qscheme=torch.per_tensor_symmetric, reduce_range=False,
)  # fmt: skip
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
    qscheme=torch.per_channel_symmetric, reduce_range=False, ch_axis=0,
)  # fmt: skip
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
    qscheme=torch.per_tensor_symmetric,
)  # fmt: skip
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
    qscheme=torch.per_channel_symmetric,
)  # fmt: skip
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)


def disable_fake_quant(mod: Module) -> None:
    """Switches a fake quantization off; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Module) -> None:
    """Switches a fake quantization on; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Module) -> None:
    """Keeps the scale of a fake quantization; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Module) -> None:
    """Lets a fake quantization adapt its scale; for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()
