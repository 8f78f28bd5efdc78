"""Fourier transforms, windows, and what sounds need."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.table import bounded, dtype_of, operator


def _complex(x: Any) -> Any:
    """Numbers as ONNX keeps them: the last dimension has the real part, or both."""
    return x[..., 0] if x.shape[-1] == 1 else torch.complex(x[..., 0], x[..., 1])


def _transform(x: Any, length: int | None, axis: int, inverse: int, onesided: int) -> Any:
    signal, axis = _complex(x), axis % x.dim()
    if length is not None:
        bounded([length])
    if inverse and onesided:
        return torch.fft.irfft(signal, length, axis).unsqueeze(-1)
    made = (torch.fft.ifft if inverse else torch.fft.fft)(signal, length, axis)
    if onesided:
        made = made.narrow(axis, 0, made.shape[axis] // 2 + 1)
    return torch.view_as_real(made)


@operator("DFT")
def dft(x: Any, length: Any = None, axis: Any = None, inverse: int = 0, onesided: int = 0) -> Any:
    at = -2 if axis is None else int(axis)
    return _transform(x, None if length is None else int(length), at, inverse, onesided).to(x.dtype)


@operator("STFT")
def stft(x: Any, step: Any, window: Any = None, length: Any = None, onesided: int = 1) -> Any:
    size = int(length) if length is not None else x.shape[-2] if window is None else window.shape[0]
    if not 0 < size <= x.shape[1] or int(step) <= 0:
        raise ValueError(f"onnx: STFT of {x.shape[1]} numbers in frames of {size}, by steps of {int(step)}")
    frames = x.unfold(1, size, int(step)).movedim(-1, 2)  # batch, frames, size, 1 or 2
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    return _transform(frames, None, 2, 0, onesided).to(x.dtype)


def _window(name: str, *weights: float) -> None:
    """A window that is a sum of cosines."""

    def window(size: Any, output_datatype: int = 1, periodic: int = 1) -> Any:
        (count,) = bounded([size])
        turns = torch.arange(count, dtype=torch.float64) * (2 * math.pi / max(count if periodic else count - 1, 1))
        made = sum(weight * (-1) ** k * torch.cos(k * turns) for k, weight in enumerate(weights))
        return made.to(dtype_of(output_datatype))

    window.__name__ = window.__qualname__ = name.lower()
    operator(name)(window)


_window("HannWindow", 0.5, 0.5)
_window("HammingWindow", 25 / 46, 21 / 46)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


@operator("MelWeightMatrix")
def mel_weight_matrix(bins: Any, length: Any, rate: Any, lowest: Any, highest: Any, output_datatype: int = 1) -> Any:
    count, size = int(bins), int(length)
    bounded([size // 2 + 1, count])
    low, high = (2595 * math.log10(1 + float(f) / 700) for f in (lowest, highest))
    mel = low + torch.arange(count + 2, dtype=torch.float64) * ((high - low) / (count + 2))
    edges = torch.floor((size + 1) * 700 * (10 ** (mel / 2595) - 1) / int(rate))
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    at = torch.arange(size // 2 + 1, dtype=torch.float64)[:, None]
    rising = torch.where(middle > left, (at - left) / (middle - left).clamp(min=1), (at == middle).double())
    falling = (right - at) / (right - middle).clamp(min=1)
    made = torch.where((at >= left) & (at <= middle), rising, torch.zeros_like(rising))
    return torch.where((at >= middle) & (at < right), falling, made).to(dtype_of(output_datatype))
