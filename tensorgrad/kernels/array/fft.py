"""Discrete Fourier transforms: complex to complex, real to complex, complex to real.

    X[k] = scale · Σⱼ x[j] · exp(∓2πi·jk / n)       (minus: forward; plus: inverse)

over each of `dims`, which are unique and counted from the front; sizes are at least 1. `normalization` selects the
scale: 1 (if 0), one over the square root of the number of points (1), or one over that number (2).

The transforms are NumPy's own (pocketfft). Its public functions compute single precision in double if the scale is 1
(seven times as slow for large arrays) and take longer to set up than a small transform; so the underlying ufuncs are
called here, with a scale in the array's precision. If they are missing (CuPy), the public functions are used.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

try:
    from numpy.fft import _pocketfft_umath as ufuncs  # type: ignore[attr-defined]
except ImportError:  # an internal module of NumPy
    ufuncs = None

_FORWARD = ("backward", "ortho", "forward")  # the array module's names for them, in a forward transform
_INVERSE = ("forward", "ortho", "backward")  # and in an inverse one


def c2c(xp, x, dims, normalization, forward):
    """Transforms a complex array."""
    if not dims:
        return x.copy()
    if xp is not np or ufuncs is None:
        with np.errstate(all="ignore"):
            if forward:
                return xp.fft.fftn(x, axes=dims, norm=_FORWARD[normalization])
            return xp.fft.ifftn(x, axes=dims, norm=_INVERSE[normalization])
    out = np.empty(x.shape, x.dtype)
    _transform(x, out, dims, _scale(x, _points(x, dims), normalization), forward)
    return out


def r2c(xp, x, dims, normalization, onesided, forward):
    """Transforms a real array: all frequencies, or only the first n // 2 + 1 of the last dimension."""
    *others, last = dims
    n = x.shape[last]
    half = n // 2 + 1
    if xp is np and ufuncs is not None:
        shape = [*x.shape]
        shape[last] = half if onesided else n
        out = np.empty(shape, "F" if x.dtype.char == "f" else "D")
        spectrum = out if onesided else out[(*_all(last), slice(half))]
        ufunc = ufuncs.rfft_n_odd if n % 2 else ufuncs.rfft_n_even
        ufunc(x, _scale(x, _points(x, dims), normalization), axes=[(last,), (), (last,)], out=spectrum)
        if others:
            _transform(spectrum, spectrum, others, _ONE[x.dtype.char], True)
    else:
        with np.errstate(all="ignore"):
            spectrum = xp.fft.rfftn(x, axes=dims, norm=_FORWARD[normalization])
        out = spectrum
        if not onesided:
            out = xp.empty(x.shape, spectrum.dtype)
            out[(*_all(last), slice(half))] = spectrum
            spectrum = out[(*_all(last), slice(half))]
    if not forward:  # the inverse transform of real numbers is the conjugate of the forward one
        xp.conjugate(spectrum, out=spectrum)
    if not onesided:
        _mirror(xp, out, last, others)
    return out


def c2r(xp, x, dims, normalization, size, forward):
    """Returns the real array whose one-sided spectrum is `x`; `size` is its length in the last of `dims`.

    Imaginary parts at frequencies where a real array's spectrum has none (0 and, if `size` is even, size // 2) are
    ignored.
    """
    *others, last = dims
    fresh = forward
    if forward:  # to a real result: the inverse transform of the conjugate
        x = xp.conjugate(x)
    if xp is not np or ufuncs is None:
        with np.errstate(all="ignore"):
            if others:
                x = xp.fft.ifftn(x, axes=tuple(others), norm=_INVERSE[normalization])
            return xp.fft.irfft(x, size, last, _INVERSE[normalization])
    if others:
        between = x if fresh else np.empty(x.shape, x.dtype)
        _transform(x, between, others, _ONE[x.dtype.char], False)
        x = between
    shape = [*x.shape]
    shape[last] = size
    out = np.empty(shape, x.dtype.char.lower())
    scale = _scale(x, size * _points(x, others), normalization)
    ufuncs.irfft(x, scale, axes=[(last,), (), (last,)], out=out)
    return out


def weigh_half(xp, x, dim, size, factor):
    """Multiplies a one-sided spectrum of `size` points by `factor` at the frequencies with a mirror image.

    Those without one are 0 and, if the size is even, size // 2.
    """
    out = x * factor
    lone = (*_all(dim), slice(None, None, size if size % 2 else size // 2))
    out[lone] = x[lone]
    return out


_ONE: dict[str, Any] = {"f": np.float32(1), "F": np.float32(1), "d": np.float64(1), "D": np.float64(1)}

# --- parts ---------------------------------------------------------------------------------------------------------


def _points(x, dims):
    return x.shape[dims[0]] if len(dims) == 1 else math.prod([x.shape[d] for d in dims])


def _scale(x, points, normalization):
    """Returns the scale as a scalar in the array's precision."""
    one = _ONE[x.dtype.char]
    return type(one)(points ** (-0.5 * normalization)) if normalization else one


def _transform(x, out, dims, scale, forward):
    """Writes the complex transform of `x` over `dims` (possibly none) to `out`, which may be `x`."""
    ufunc = ufuncs.fft if forward else ufuncs.ifft
    for d in dims:
        ufunc(x, scale, axes=[(d,), (), (d,)], out=out)
        x, scale = out, scale.dtype.type(1)


def _mirror(xp, out, last, others):
    """Fills in the second half of a spectrum along `last`, in place.

    X[-k] is the conjugate of X[k] in all transformed dimensions together.
    """
    n = out.shape[last]
    to, from_ = [slice(None)] * out.ndim, [slice(None)] * out.ndim
    to[last], from_[last] = slice(n // 2 + 1, n), slice(n - n // 2 - 1, 0, -1)
    for parts in itertools.product(_MIRRORED, repeat=len(others)):
        for d, (part, image) in zip(others, parts, strict=True):
            to[d], from_[d] = part, image
        xp.conjugate(out[tuple(from_)], out=out[tuple(to)])


# Positions of frequencies, and of their negatives: 0 is its own negative, the others are in reverse order.
_MIRRORED = ((slice(0, 1), slice(0, 1)), (slice(1, None), slice(None, 0, -1)))


def _all(dim):
    """Indexes all elements of the dimensions before `dim`."""
    return (slice(None),) * dim
