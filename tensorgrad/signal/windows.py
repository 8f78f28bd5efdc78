"""`torch.signal.windows`: windows of `M` points, symmetric (`sym`) or periodic.

With D = M - 1 for a symmetric window and D = M for a periodic one, the formulas below hold for n = 0 … M - 1. Every
function takes `dtype` (float32 or float64; by default the default dtype), `device` and `requires_grad`, and raises
ValueError for any other dtype or a negative `M`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as as_int

import numpy as np

from tensorgrad import dtypes
from tensorgrad.layouts import strided
from tensorgrad.ops.create import finish
from tensorgrad.ops.signal import windows as shapes
from tensorgrad.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _checked(name: str, M, dtype, layout) -> tuple[int, dtypes.dtype]:
    """The number of points and the dtype. Raises: ValueError if they are invalid."""
    M, dtype = as_int(M), dtypes.DEFAULT.floating if dtype is None else dtype
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype is not dtypes.float32 and dtype is not dtypes.float64:
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    return M, dtype


def _made(values: np.ndarray, dtype: dtypes.dtype, device, requires_grad: bool) -> Tensor:
    return finish(values.astype(dtype.numpy), requires_grad, device)


def bartlett(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """A triangle: 1 - |2n/D - 1|.

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    M, dtype = _checked("bartlett", M, dtype, layout)
    return _made(shapes.sampled(M, sym, shapes.triangle), dtype, device, requires_grad)


def general_cosine(
    M: int, *, a: Iterable[float], sym=True, dtype=None, layout=strided, device=None, requires_grad=False
) -> Tensor:
    """A sum of cosines: a₀ - a₁·cos(2πn/D) + a₂·cos(4πn/D) - …

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    Raises:
        TypeError: Unless `a` is a sequence.
        ValueError: If `a` is empty, for an unsupported dtype, or a negative `M`.

    >>> torch.signal.windows.general_cosine(4, a=[0.5, 0.5], sym=False)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    M, dtype = _checked("general_cosine", M, dtype, layout)
    coefficients = _coefficients(a) if M > 1 else []
    return _made(shapes.sampled(M, sym, shapes.cosine_sum(*coefficients)), dtype, device, requires_grad)


def _coefficients(a) -> list[float]:
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    coefficients = [float(value) for value in a]
    if not coefficients:
        raise ValueError("Coefficients cannot be empty")
    return coefficients


def general_hamming(
    M: int, *, alpha: float = 0.54, sym=True, dtype=None, layout=strided, device=None, requires_grad=False
) -> Tensor:
    """A raised cosine: α - (1 - α)·cos(2πn/D).

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.general_hamming(4, alpha=0.6, sym=False)
    tensor([0.2000, 0.6000, 1.0000, 0.6000])
    """
    a = (alpha, 1 - alpha)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hamming(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """The Hamming window, 0.54 - 0.46·cos(2πn/D).

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """The Hann window, sin²(πn/D).

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    a = (0.5, 0.5)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def blackman(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """The Blackman window, 0.42 - 0.5·cos(2πn/D) + 0.08·cos(4πn/D).

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.blackman(4, sym=False)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """
    _checked("blackman", M, dtype, layout)
    a = shapes.BLACKMAN
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def nuttall(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """The minimum 4-term Blackman-Harris window by Nuttall.

    Source: A. H. Nuttall, "Some windows with very good sidelobe behavior", 1981.

    >>> torch.signal.windows.nuttall(4, sym=False)[1:]
    tensor([0.2270, 1.0000, 0.2270])
    """
    a = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def cosine(M: int, *, sym=True, dtype=None, layout=strided, device=None, requires_grad=False) -> Tensor:
    """Half a period of a sine: sin(π(n + ½) / (D + 1)).

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """
    M, dtype = _checked("cosine", M, dtype, layout)
    periods = M if sym or M <= 1 else M + 1
    return _made(np.sin(np.pi * (np.arange(M) + 0.5) / periods), dtype, device, requires_grad)


def _number(value):
    """A parameter of a window as a number. Raises: RuntimeError for a tensor with dimensions."""
    if not isinstance(value, Tensor):
        return value
    if value.ndim:
        what = f"{value.ndim} dimension(s)"
        raise RuntimeError(
            "linspace only supports 0-dimensional start and end tensors, but got start with "
            f"{what} and end with {what}."
        )
    return value.item()


def _centred(M: int, sym: bool) -> np.ndarray:
    """The distances of the points from the middle of the window."""
    return np.arange(M) - (M - 1 if sym or M <= 1 else M) / 2


def exponential(
    M: int, *, center=None, tau: float = 1.0, sym=True, dtype=None, layout=strided, device=None, requires_grad=False
) -> Tensor:
    """exp(-|n - center| / τ), also called Poisson window; `center` is the middle, D/2, unless given.

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    Raises:
        ValueError: For τ ≤ 0, or if `center` is given for a symmetric window, an unsupported dtype, or a negative `M`.

    >>> torch.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    M, dtype = _checked("exponential", M, dtype, layout)
    tau, center = _number(tau), _number(center)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    distance = _centred(M, sym) if center is None else np.arange(M) - center
    return _made(np.exp(-abs(distance) / tau), dtype, device, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym=True, dtype=None, layout=strided, device=None, requires_grad=False
) -> Tensor:
    """exp(-((n - D/2) / σ)² / 2), with `std` for σ.

    Raises:
        ValueError: For σ ≤ 0, an unsupported dtype, or a negative `M`.

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    M, dtype = _checked("gaussian", M, dtype, layout)
    std = _number(std)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _made(np.exp(-((_centred(M, sym) / std) ** 2) / 2), dtype, device, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym=True, dtype=None, layout=strided, device=None, requires_grad=False
) -> Tensor:
    """I₀(β·√(1 - (2n/D - 1)²)) / I₀(β), with `beta` for β.

    Raises:
        ValueError: For β < 0, an unsupported dtype, or a negative `M`.

    D is M - 1, or M for a periodic window (not `sym`), and n = 0 … M - 1.

    >>> torch.signal.windows.kaiser(3, beta=3.0)
    tensor([0.2049, 1.0000, 0.2049])
    """
    M, dtype = _checked("kaiser", M, dtype, layout)
    beta = _number(beta)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _made(shapes.sampled(M, sym, shapes.kaiser(beta)), dtype, device, requires_grad)
