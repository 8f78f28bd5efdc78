"""Observers: modules that note the range of what passes through them, and choose a scale and a zero point for it."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.nn import Module
from tensorgrad.tensor import Tensor

_SYMMETRIC = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
_RANGES = {
    torch.qint8: (-128, 127), torch.int8: (-128, 127), torch.quint8: (0, 255), torch.uint8: (0, 255),
    torch.qint32: (-(2**31), 2**31 - 1), torch.int32: (-(2**31), 2**31 - 1),
}  # fmt: skip


class _Partial:
    """An observer or fake quantization with some arguments: calling it makes the module."""

    def __init__(self, made: partial):
        self.p = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.p(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.p!r}{{}}"

    def with_args(self, **kwargs: Any) -> _Partial:
        return _Partial(partial(self.p, **kwargs))


def with_args(cls: Any, **kwargs: Any) -> _Partial:
    """Returns a function that makes such modules with these arguments."""
    return _Partial(partial(cls, **kwargs))


class ObserverBase(Module):
    """A module that looks at tensors, and returns them unchanged."""

    def __init__(self, dtype: Any, is_dynamic: bool = False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    with_args = classmethod(with_args)

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Returns the scales and zero points."""
        raise NotImplementedError


class UniformQuantizationObserverBase(ObserverBase):
    """An observer of integers at equal distances.

    Args:
        dtype: of the integers.
        qscheme: per tensor or per channel, affine or symmetric.
        reduce_range: whether one bit less is used.
        quant_min, quant_max: the range of the integers, if it is not that of the dtype.
        eps: the least scale.
    """

    eps: Tensor

    def __init__(
        self,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = float(np.finfo(np.float32).eps),
        is_dynamic: bool = False,
        **kwargs: Any,
    ):
        super().__init__(dtype, is_dynamic)
        if dtype not in _RANGES:
            raise ValueError(f"{type(self).__name__}: expected a dtype of 8 or 32 bits, got {dtype}")
        both = quant_min is not None and quant_max is not None
        if (quant_min is None) != (quant_max is None) or (both and quant_min >= quant_max):  # type: ignore[operator]
            raise ValueError(f"expected quant_min < quant_max, or neither, got {quant_min} and {quant_max}")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.has_customized_qrange = quant_min is not None
        low, high = _RANGES[dtype] if quant_min is None or quant_max is None else (quant_min, quant_max)
        self.quant_min, self.quant_max = (low // 2, high // 2) if reduce_range and dtype.itemsize == 1 else (low, high)
        self.register_buffer("eps", torch.tensor([eps]))

    def _calculate_qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the scales and zero points of ranges, which always include zero."""
        if not low.numel() or not bool(torch.isfinite(low).all()) or not bool(torch.isfinite(high).all()):
            if low.numel() and not bool(((low == float("inf")) & (high == float("-inf"))).all()):
                raise RuntimeError(f"{type(self).__name__}: the range from {low} to {high} is not finite")
            warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=3)
            return torch.tensor([1.0]), torch.tensor([0])
        low, high, steps = low.reshape(-1), high.reshape(-1), float(self.quant_max - self.quant_min)
        below, above = low.clamp(max=0), high.clamp(min=0)
        if self.qscheme in _SYMMETRIC:
            scale = torch.maximum(torch.maximum(-below, above) / (steps / 2), self.eps)
            middle = 0
            if not self.dtype.is_signed:
                middle = (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
            return scale, torch.full(scale.shape, middle, dtype=torch.int64)
        if self.qscheme is torch.per_channel_affine_float_qparams:
            scale = (high - low) / steps
            scale = torch.where(scale > self.eps, scale, torch.ones_like(scale))
            return scale, -low / scale
        scale = torch.maximum((above - below) / steps, self.eps)
        zero = (self.quant_min - torch.round(below / scale).to(torch.int32)).clamp(self.quant_min, self.quant_max)
        return scale, zero

    def reset_min_max_vals(self) -> None:
        """Forgets what was seen."""
        raise NotImplementedError


class MinMaxObserver(UniformQuantizationObserverBase):
    """Notes the least and the largest value of all.

    >>> from tensorgrad.ao.quantization import MinMaxObserver
    >>> observer = MinMaxObserver()
    >>> _ = observer(torch.tensor([-1.0, 254.0]))
    >>> observer.calculate_qparams()
    (tensor([1.]), tensor([1], dtype=torch.int32))
    """

    min_val: Tensor
    max_val: Tensor

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._clear()

    def _clear(self) -> None:
        self.register_buffer("min_val", torch.tensor(float("inf")))
        self.register_buffer("max_val", torch.tensor(float("-inf")))

    def reset_min_max_vals(self) -> None:
        """Forgets what was seen."""
        self._clear()

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amin(), x.amax()

    def _combined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(self.min_val, low), torch.maximum(self.max_val, high)

    def forward(self, x_orig: Tensor) -> Tensor:
        """Notes the range of a tensor, and returns it."""
        if x_orig.numel():
            self.min_val, self.max_val = self._combined(*self._seen(x_orig.detach().to(self.min_val.dtype)))
        return x_orig

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Returns the scale and the zero point, each a tensor."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={_shown(self.min_val)}, max_val={_shown(self.max_val)}"


def _shown(values: Tensor) -> Any:
    return values.item() if values.ndim == 0 else values


class _Moving(MinMaxObserver):
    """What observers of moving averages have in common: the first range, then a step towards each new one."""

    def _combined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        if not self.min_val.numel() or bool((self.min_val == float("inf")).all()):
            return low, high
        step = self.averaging_constant
        return self.min_val + step * (low - self.min_val), self.max_val + step * (high - self.max_val)


class MovingAverageMinMaxObserver(_Moving):
    """Averages the least and the largest values, later ones with the weight `averaging_constant`."""

    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any):
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(*args, **kwargs)
        self.averaging_constant = averaging_constant


class PerChannelMinMaxObserver(MinMaxObserver):
    """Notes the least and the largest value for each index of the dimension `ch_axis`."""

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_channel_affine,
        *args: Any,
        **kwargs: Any,
    ):
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.ch_axis = ch_axis

    def _clear(self) -> None:
        self.register_buffer("min_val", torch.tensor([]))
        self.register_buffer("max_val", torch.tensor([]))

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.transpose(0, self.ch_axis).flatten(1) if x.ndim > 1 else x.unsqueeze(1)
        return rows.amin(1), rows.amax(1)

    def _combined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return super()._combined(low, high) if self.min_val.numel() else (low, high)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # as many channels as were seen
            if f"{prefix}{name}" in state_dict:
                setattr(self, name, torch.empty_like(state_dict[f"{prefix}{name}"]))
        super()._load_from_state_dict(state_dict, prefix, *args)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """`MovingAverageMinMaxObserver` for each index of the dimension `ch_axis`."""

    def __init__(self, averaging_constant: float = 0.01, ch_axis: int = 0, *args: Any, **kwargs: Any):
        super().__init__(ch_axis, *args, **kwargs)
        self.averaging_constant = averaging_constant

    def _combined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _Moving._combined(self, low, high)  # type: ignore[arg-type]


class HistogramObserver(MinMaxObserver):
    """Counts the values in `bins`, and chooses the range in which rounding loses least, in the sum of squares.

    The range grows with what is seen; the counts then move to the new bins. The search begins with all bins and leaves
    off those at either end that hold the least, as long as the loss falls.
    """

    histogram: Tensor
    _FINER = 16  # parts of a bin, when counts move to other bins
    _STEP = 1e-5  # the share of the values that each step of the search leaves off

    def __init__(self, bins: int = 2048, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.qscheme not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            raise NotImplementedError(f"HistogramObserver: expected one scale for all, got {self.qscheme}")
        self.bins = bins
        buffers = self._buffers
        low, high = buffers.pop("min_val"), buffers.pop("max_val")  # PyTorch's order
        self.register_buffer("histogram", torch.zeros(bins))
        self.register_buffer("min_val", low)
        self.register_buffer("max_val", high)

    def _clear(self) -> None:
        super()._clear()
        if "histogram" in self._buffers:
            self.histogram = torch.zeros(self.bins)

    def forward(self, x_orig: Tensor) -> Tensor:
        """Counts the values of a tensor, and returns it."""
        x = x_orig.detach().float()
        finite = torch.isinf(x).logical_not()
        if not bool(finite.all()):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[finite]
        if not x.numel():
            return x_orig
        low, high = self._combined(x.amin(), x.amax())
        counts = torch.histc(x, self.bins, min=low.item(), max=high.item())
        if bool(self.max_val >= self.min_val):
            counts = counts + self._moved(low, high)
        self.histogram, self.min_val, self.max_val = counts, low, high
        return x_orig

    def _moved(self, low: Tensor, high: Tensor) -> Tensor:
        """The counts so far, in the bins from `low` to `high`."""
        old_low, old_high = self.min_val.item(), self.max_val.item()
        if (low.item(), high.item()) == (old_low, old_high):
            return self.histogram
        if old_low == old_high:
            return torch.histc(self.min_val, self.bins, min=low.item(), max=high.item()) * self.histogram.sum()
        parts = self.bins * self._FINER
        width = np.float32((np.float32(old_high) - np.float32(old_low)) / np.float32(parts))
        middles = torch.linspace(old_low, old_high, parts + 1).numpy()[:-1] + np.float32(0.5) * width
        edges = torch.linspace(low.item(), high.item(), self.bins + 1).numpy()
        into = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, self.bins - 1)
        weights = np.repeat(self.histogram.numpy(), self._FINER) / np.float32(self._FINER)
        return torch.from_numpy(np.bincount(into, weights, self.bins).astype(np.float32))

    def _loss(self, first: int, last: int) -> float:
        """The sum of squares that rounding loses if the integers reach from bin `first` to bin `last`."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        count = 2 ** (8 * self.dtype.itemsize)
        step = width * (last - first + 1) / count
        if step == 0:
            return 0.0
        begin = (np.arange(self.bins) - first) * width
        end = begin + width
        of_begin, of_end = (np.clip(np.floor(edge / step), 0, count - 1) for edge in (begin, end))
        density = self.histogram.numpy().astype(np.float64) / width
        cubes = lambda low, high: density * (high**3 - low**3) / 3
        half = step / 2
        losses = cubes(begin - (of_begin + 0.5) * step, half)
        losses += (of_end - of_begin - 1) * cubes(-half, half)
        losses += cubes(-half, end - (of_end * step + half))
        return float(losses.sum())

    def _best(self) -> tuple[float, float]:
        """The range with the least loss."""
        total, sums = float(self.histogram.sum()), np.cumsum(self.histogram.numpy().astype(np.float64))
        first, last, least = 0, self.bins - 1, float("inf")
        low, high = 0.0, 1.0
        while low < high:
            left = min(max(int(np.searchsorted(sums, (low + self._STEP) * total)), first), last)
            right = max(min(int(np.searchsorted(sums, (high - self._STEP) * total, side="right")) - 1, last), first)
            if left - first > last - right:
                low, new = low + self._STEP, (left, last)
            else:
                high, new = high - self._STEP, (first, right)
            if new == (first, last):
                continue
            loss = self._loss(*new)
            if loss > least:
                break
            least, (first, last) = loss, new
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        return self.min_val.item() + width * first, self.min_val.item() + width * (last + 1)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Returns the scale and the zero point, each a tensor."""
        if not bool(self.max_val >= self.min_val):
            return self._calculate_qparams(self.min_val, self.max_val)
        return self._calculate_qparams(*(torch.tensor(edge) for edge in self._best()))


class FixedQParamsObserver(ObserverBase):
    """An observer with a scale and a zero point that were given."""

    def __init__(
        self, scale: float, zero_point: int, dtype: Any = torch.quint8, qscheme: Any = torch.per_tensor_affine,
        quant_min: int = 0, quant_max: int = 255, is_dynamic: bool = False, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", torch.tensor([scale]))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int32))

    def forward(self, X: Tensor) -> Tensor:
        return X

    def calculate_qparams(self) -> tuple[Any, Any]:  # type: ignore[override]
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Only says which dtype is wanted: the range is taken when the model runs."""

    def __init__(
        self, dtype: Any = torch.float32, custom_op_name: str = "", compute_dtype: Any = None,
        quant_min: int | None = None, quant_max: int | None = None, qscheme: Any = None, eps: float | None = None,
        is_dynamic: bool = False,
    ):  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.custom_op, self.qscheme = custom_op_name, qscheme or torch.per_tensor_affine
        self.quant_min, self.quant_max = quant_min, quant_max

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise Exception("calculate_qparams should not be called for PlaceholderObserver")


class NoopObserver(ObserverBase):
    """Does nothing."""

    def __init__(self, dtype: Any = torch.float16, custom_op_name: str = ""):
        super().__init__(dtype)
        self.custom_op = custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise Exception("calculate_qparams should not be called for NoopObserver")


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=torch.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint8, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
)
