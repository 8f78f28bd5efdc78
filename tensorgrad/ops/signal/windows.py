"""Window functions: a signal segment is multiplied by one to taper its ends.

A window of N points is a function of n/D, with D = N - 1 for a symmetric window and D = N for a periodic one (the
symmetric window of N + 1 points without the last). Values are computed in double precision on the host.

The shapes are those of F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform",
1978. This file has `torch.hann_window` and the like; `torch.signal.windows` uses the same formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index as as_int

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import scalar_type
from tensorgrad.ops.create import finish
from tensorgrad.tensor import Tensor

# --- the shapes ----------------------------------------------------------------------------------------------------


def sampled(length: int, symmetric: bool, shape: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Evaluates `shape`, a function on [0, 1], at the points of a window; a window of one point is 1."""
    if length <= 1:
        return np.ones(length)
    return shape(np.arange(length) / (length - symmetric))


def cosine_sum(*coefficients: float) -> Callable[[np.ndarray], np.ndarray]:
    """a₀ - a₁·cos(2πt) + a₂·cos(4πt) - …"""

    def shape(t):
        values = np.zeros(len(t))
        for i, a in enumerate(coefficients):
            values += (-1) ** i * a * np.cos(2 * np.pi * i * t) if i else a
        return values

    return shape


def triangle(t: np.ndarray) -> np.ndarray:
    """Rises linearly from 0 to 1 in the middle, and falls back to 0."""
    return 1 - abs(2 * t - 1)


def kaiser(beta: float) -> Callable[[np.ndarray], np.ndarray]:
    """I₀(β·√(1 - (2t - 1)²)) / I₀(β), with the modified Bessel function I₀.

    Source: J. F. Kaiser, R. W. Schafer, "On the use of the I₀-sinh window for spectrum analysis", 1980.
    """

    def shape(t):
        with np.errstate(all="ignore"):
            return np.i0(beta * np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0))) / np.i0(beta)

    return shape


BLACKMAN = (0.42, 0.5, 0.08)

# --- PyTorch's older functions ---------------------------------------------------------------------------------------


def _window(name: str, shape, length, periodic, dtype, layout, device, requires_grad, pin_memory) -> Tensor:
    """Raises: RuntimeError for a negative length, or if dtype or layout are not floating-point and strided."""
    try:
        length = as_int(length)
    except TypeError:
        kind = type(length).__name__
        raise TypeError(f"{name}(): argument 'window_length' (position 1) must be int, not {kind}") from None
    dtype = dtypes.DEFAULT.floating if dtype is None else dtype
    if layout is not None and str(layout) != "torch.strided":
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    if dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if dtype.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{scalar_type(dtype)}'")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    array = sampled(length, not periodic, shape).astype(dtype.numpy)
    return finish(array, requires_grad, device, pin_memory=pin_memory)


@composite("function")
def hann_window(
    window_length: int, periodic: bool = True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns the Hann window sin²(πn/D), where D is `window_length` if periodic, and one less if symmetric.

    The dtype is the default dtype unless given.

    Raises:
        RuntimeError: If the length is negative or the dtype is not floating-point.

    >>> torch.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    shape = cosine_sum(0.5, 0.5)
    return _window("hann_window", shape, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


@composite("function")
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype=None, layout=None,
    device=None, pin_memory=False, requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns the Hamming window `alpha` - `beta`·cos(2πn/D); see `hann_window` for D, dtype and errors.

    >>> torch.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    shape = cosine_sum(alpha, beta)
    return _window("hamming_window", shape, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


@composite("function")
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns the Blackman window 0.42 - 0.5·cos(2πn/D) + 0.08·cos(4πn/D); see `hann_window` for D, dtype and errors.

    >>> torch.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """
    shape = cosine_sum(*BLACKMAN)
    return _window("blackman_window", shape, window_length, periodic, dtype, layout, device, requires_grad, pin_memory)


@composite("function")
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns the Bartlett (triangular) window 1 - |2n/D - 1|; see `hann_window` for D, dtype and errors.

    >>> torch.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window(
        "bartlett_window", triangle, window_length, periodic, dtype, layout, device, requires_grad, pin_memory
    )


@composite("function")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype=None, layout=None, device=None,
    pin_memory=False, requires_grad=False,
) -> Tensor:  # fmt: skip
    """Returns the Kaiser window I₀(β·√(1 - (2n/D - 1)²)) / I₀(β), which is narrower for larger `beta`.

    See `hann_window` for D, dtype and errors.

    >>> torch.kaiser_window(4, beta=3.0)
    tensor([0.2049, 0.7269, 1.0000, 0.7269])
    """
    return _window(
        "kaiser_window", kaiser(beta), window_length, periodic, dtype, layout, device, requires_grad, pin_memory
    )
