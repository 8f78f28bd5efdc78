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
_POINTS = 2048  # at least so many values stand for a histogram


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
    """Counts values in `bins` bins, and chooses the range whose rounding and clipping lose least, in expected squares.

    The range of the bins grows with what is seen. Candidates for the chosen range begin and end where bins do; each is
    judged by quantizing points of the bins with its scale and zero point. PyTorch searches in another way: from the
    same values it may choose another range, and share counts out otherwise when the range has grown.
    """

    histogram: Tensor

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
        values = x_orig.detach().float().flatten()
        infinite = torch.isinf(values)
        if bool(infinite.any()):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            values = values[~infinite]
        if values.numel():
            low, high = self._combined(*self._seen(values))
            counts = torch.histc(values, self.bins, min=low.item(), max=high.item())
            self.histogram = counts + torch.from_numpy(self._counts_between(low.item(), high.item()))
            self.min_val, self.max_val = low, high
        return x_orig

    def _counts_between(self, low: float, high: float) -> np.ndarray:
        """What was counted so far, in bins from `low` to `high`: a bin's count is shared out evenly over its width."""
        counts, old_low, old_high = self.histogram.numpy(), self.min_val.item(), self.max_val.item()
        if old_low > old_high or (old_low, old_high) == (low, high):
            return counts
        if old_low == old_high:
            return np.histogram([old_low], self.bins, (low, high), weights=[counts.sum()])[0].astype(np.float32)
        up_to_edge = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
        edges = np.linspace(low, high, self.bins + 1)
        return np.diff(np.interp(edges, np.linspace(old_low, old_high, self.bins + 1), up_to_edge)).astype(np.float32)

    def _losses(self, low: np.ndarray, high: np.ndarray, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The squared error of quantizing `values`, each as often as `counts` says, for each of some ranges."""
        qparams = self._calculate_qparams(torch.from_numpy(low).float(), torch.from_numpy(high).float())
        scale, zero = (each.numpy().astype(np.float64)[:, None] for each in qparams)
        error = np.clip(np.rint(values / scale) + zero, self.quant_min, self.quant_max)
        error -= zero
        error *= scale
        error -= values
        return np.square(error, out=error) @ counts

    def _best_range(self) -> tuple[float, float]:
        """The range that loses least, searched among bins' edges: first some of them, then those around the best."""
        low, high = self.min_val.item(), self.max_val.item()
        parts = -(-_POINTS // self.bins)
        edges, fine = np.linspace(low, high, self.bins + 1), np.linspace(low, high, self.bins * parts + 1)
        counts = self.histogram.numpy().astype(np.float64)
        counts[[0, -1]] = np.maximum(counts[[0, -1]] - 1, 0)  # one value of these bins is known
        values = np.concatenate([(fine[:-1] + fine[1:]) / 2, [low, high]])
        counts = np.concatenate([np.repeat(counts, parts) / parts, [1.0, 1.0]])
        values, counts = values[counts > 0], counts[counts > 0]
        best, distance = (0, self.bins), self.bins
        while distance > 1:
            reach, distance = distance, max(distance // 8, 1)
            around = np.arange(-reach, reach + 1, distance)
            first, last = (np.unique(np.clip(edge + around, 0, self.bins)) for edge in best)
            first, last = (index.ravel() for index in np.meshgrid(first, last[::-1], indexing="ij"))  # widest first
            first, last = first[first < last], last[first < last]
            least = self._losses(edges[first], edges[last], values, counts).argmin()
            best = (int(first[least]), int(last[least]))
        return float(edges[best[0]]), float(edges[best[1]])

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Returns the scale and the zero point, each a tensor."""
        if not bool(self.max_val > self.min_val):
            return super().calculate_qparams()
        return self._calculate_qparams(*(torch.tensor(edge) for edge in self._best_range()))


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


class ReuseInputObserver(ObserverBase):
    """Says that a result has the scale and zero point of the input; only for models as graphs (`prepare_fx`)."""

    def __init__(self) -> None:
        super().__init__(torch.quint8)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise Exception("calculate_qparams should not be called for ReuseInputObserver")


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
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=torch.quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=torch.quint8, quant_min=0, quant_max=255
)
default_reuse_input_observer = ReuseInputObserver
