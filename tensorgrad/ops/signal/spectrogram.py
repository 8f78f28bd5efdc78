"""The short-time Fourier transform and its inverse.

    X[k, t] = Σⱼ w[j] · x[t·hop + j] · exp(-2πi·jk / n)

A signal is divided into overlapping frames of n points, `hop` points apart; each is multiplied by a window and
transformed. The inverse multiplies each frame's inverse transform by the window again, adds up the overlapping parts,
and divides the sum by that of the squared windows, which compensates for both multiplications (D. Griffin, J. Lim,
"Signal estimation from modified short-time Fourier transform", 1984).
"""

from __future__ import annotations

from functools import partial
from operator import index as as_int

from tensorgrad import dtypes
from tensorgrad.autograd.graph import legacy_type_name
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import warn
from tensorgrad.ops.complex import view_as_real
from tensorgrad.ops.create import ones
from tensorgrad.ops.rearrange import constant_pad_nd
from tensorgrad.ops.rearrange import pad as pad_around
from tensorgrad.ops.shape import unfold_grad as overlap_add
from tensorgrad.ops.signal.fft import fft_c2c, fft_c2r, fft_r2c, floating
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole as values_of_all

_NO_WINDOW = "A window was not provided. A rectangular window will be applied"
_RECTANGULAR = (
    "To suppress this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`."
)
_LEAKAGE = (
    f"{_NO_WINDOW},which is known to cause spectral leakage. Other windows such as torch.hann_window or "
    f"torch.hamming_window are recommended to reduce spectral leakage.{_RECTANGULAR}"
)
_LOSSLESS = f"{_NO_WINDOW}.Please provide the same window used by stft to make the inversion lossless.{_RECTANGULAR}"
_DEPRECATED = (
    "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for "
    "all inputs, and return_complex=False will raise an error.\nNote: you can still call torch.view_as_real on the "
    "complex output to recover the old return format."
)

_TOO_SHORT = (
    "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please "
    "check your center and hop_length settings."
)


def _described(call: str, **arguments) -> str:
    """Returns a call with its arguments, as PyTorch's messages show it; `call` is its beginning."""

    def shown(value):
        if isinstance(value, Tensor):
            return f"{legacy_type_name(value._array)}{{{list(value.shape)}}}"
        return int(value) if value.__class__ is bool else value

    return f"{call}, {', '.join(f'{name}={shown(value)}' for name, value in arguments.items())})"


def _check_tensor(name: str, input) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")


def _lengths(name: str, n_fft, hop_length, win_length) -> tuple[int, int, int]:
    """Returns the three lengths; by default a quarter of `n_fft`, and all of it."""
    values: list[int] = []
    for key, value in (("n_fft", n_fft), ("hop_length", hop_length), ("win_length", win_length)):
        if value is None and key != "n_fft":
            value = values[0] // 4 if key == "hop_length" else values[0]
        try:
            values.append(as_int(value))
        except TypeError:
            raise TypeError(f"{name}(): argument '{key}' must be int, not {type(value).__name__}") from None
    return values[0], values[1], values[2]


def _framed(window: Tensor, n_fft: int, win_length: int) -> Tensor:
    """Returns the window zero-padded on both sides to `n_fft` points."""
    left = (n_fft - win_length) // 2
    return window if win_length == n_fft else constant_pad_nd(window, [left, n_fft - win_length - left])


# --- forward -------------------------------------------------------------------------------------------------------


@composite()
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True,
    pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Computes spectra of overlapping frames of a signal: (signals, points) to (signals, frequencies, frames).

    A frame has `n_fft` points and starts `hop_length` (default: a quarter of that) after the previous one. It is
    multiplied by `window`, a tensor of `win_length` (default: `n_fft`) points, centered in the frame; by default by 1.
    `center` first adds half a frame to both ends of the signal (as `torch.nn.functional.pad` does in `pad_mode`), so
    that frame t is centered at point t·hop; otherwise `align_to_window` adds only the difference between frame and
    window length. `normalized` divides by √n_fft. For real signals and windows only the frequencies 0 … n_fft // 2 are
    returned, unless `onesided` is False. `return_complex=False` (deprecated) returns pairs of real numbers instead of
    complex ones; the argument is required if signal and window are real.

    Raises:
        RuntimeError: If the lengths do not fit, the signal is not floating-point or complex, or `onesided` is True for
            complex input.

    >>> x = torch.sin(torch.arange(64.0) * (2 * torch.pi / 8))
    >>> X = torch.stft(x, n_fft=16, window=torch.hann_window(16), return_complex=True)
    >>> X.shape, X[:, 8].abs().argmax()  # two periods in a frame
    (torch.Size([9, 17]), tensor(2))
    """
    _check_tensor("stft", input)
    n_fft, hop_length, win_length = _lengths("stft", n_fft, hop_length, win_length)
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    signals = input
    if center and 1 <= input.ndim <= 2:
        signals = input.reshape(*[1] * (3 - input.ndim), *input.shape)
        signals = pad_around(signals, [n_fft // 2] * 2, pad_mode)
        signals = signals.reshape(signals.shape[3 - input.ndim :])
    any_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    _check_stft(signals, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window)
    if window is None:
        warn(_LEAKAGE)
    if return_complex is None and not any_complex:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release."
        )
    if return_complex is not None and not return_complex:
        warn(_DEPRECATED)
    if onesided and any_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if align_to_window:
        left = (n_fft - win_length) // 2
        signals = constant_pad_nd(signals, [left, n_fft - win_length - left])
    frames = floating(signals).unfold(-1, n_fft, hop_length)
    if window is None and win_length < n_fft:
        window = ones(win_length, dtype=_real(input.dtype), device=input.device)
    if window is not None:
        frames = frames * _framed(window, n_fft, win_length)
    last = (input.ndim,)
    if any_complex:
        spectra = fft_c2c(frames, last, int(normalized), True)
    else:
        spectra = fft_r2c(frames, last, int(normalized), onesided is None or bool(onesided), True)
    spectra = spectra.transpose(-1, -2)
    return spectra if return_complex or return_complex is None else view_as_real(spectra)


def _check_stft(signals, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align) -> None:
    """Raises: RuntimeError, showing the call, for arguments that do not fit together."""
    shape = list(signals.shape)
    length = shape[-1] if shape else 0
    problem = None
    if signals.dtype.category < dtypes.FLOATING:
        problem = "expected a tensor of floating point or complex values"
    elif not 1 <= len(shape) <= 2:
        problem = "expected a 1D or 2D tensor"
    elif not 0 < n_fft <= length:
        problem = f"expected 0 < n_fft < {length}, but got n_fft={n_fft}"
    elif hop_length <= 0:
        problem = f"expected hop_length > 0, but got hop_length={hop_length}"
    elif not 0 < win_length <= n_fft:
        problem = f"expected 0 < win_length <= n_fft, but got win_length={win_length}"
    elif window is not None and tuple(window.shape) != (win_length,):
        problem = (
            f"expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(window.shape)}"
        )
    if problem is not None:
        call = _described(
            f"stft({legacy_type_name(signals._array)}{shape}", n_fft=n_fft, hop_length=hop_length,
            win_length=win_length, window=window, normalized=normalized, onesided=onesided,
            return_complex=return_complex, align_to_window=align,
        )  # fmt: skip
        raise RuntimeError(f"{call} : {problem}")


# --- inverse -------------------------------------------------------------------------------------------------------


@composite()
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """Reconstructs the signal whose `stft` is closest to `input`: (signals, frequencies, frames) to (signals, points).

    Args:
        input: what `stft` returned, complex.
        n_fft: the length of the transforms.
        hop_length: the distance between frames; a quarter of `n_fft` by default.
        win_length: the length of the window; `n_fft` by default.
        window: the window of the `stft`, (win_length); ones by default.
        center: whether the `stft` padded the signal: what it added in front is removed, and at the end as far as known.
        normalized: whether the `stft` divided by √n_fft.
        onesided: whether negative frequencies were omitted; by default told from the number of frequencies.
        length: the number of points to return.
        return_complex: for complex signals.

    Raises:
        RuntimeError: If the input is real, the lengths do not fit, or the windows of all frames together do not cover
            some point ("window overlap add min: 1").

    >>> x, window = torch.arange(32.0), torch.hann_window(8)
    >>> X = torch.stft(x, 8, window=window, return_complex=True)
    >>> torch.istft(X, 8, window=window).allclose(x, atol=1e-4)
    True
    """
    _check_tensor("istft", input)
    n_fft, hop_length, win_length = _lengths("istft", n_fft, hop_length, win_length)
    if window is None:
        warn(_LOSSLESS)
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    describe = partial(
        _described, f"istft(CPU{scalar_type(input)}Type{list(input.shape)}", n_fft=n_fft,
        hop_length=hop_length, win_length=win_length, window=window, center=center, normalized=normalized,
        onesided=onesided, length=length, return_complex=return_complex,
    )  # fmt: skip
    problem = _istft_problem(input, n_fft, hop_length, win_length, window, onesided)
    if problem is not None:
        raise RuntimeError(f"{describe()} : {problem}")
    if window is not None and window.dtype.is_complex and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    onesided = input.shape[-2] != n_fft if onesided is None else onesided
    if onesided and return_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is None:
        window = ones(win_length, dtype=_real(input.dtype), device=input.device)
    window = _framed(window, n_fft, win_length)
    frames = _inverse(input, n_fft, normalized, onesided, return_complex) * window
    *batch, count, _ = frames.shape
    whole = n_fft + hop_length * (count - 1)
    signal = overlap_add(frames, (*batch, whole), len(batch), n_fft, hop_length)
    envelope = overlap_add((window * window).expand(count, n_fft), (whole,), 0, n_fft, hop_length)
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + as_int(length)
    signal, envelope = signal[..., start:end], envelope[start:end]
    if not envelope.numel() or float(values_of_all(envelope).detach().abs().min()) < 1e-11:
        raise RuntimeError(f"{describe()} window overlap add min: 1")
    signal = signal / envelope
    if end > whole:
        warn(_TOO_SHORT)
        signal = constant_pad_nd(signal, [0, end - whole])
    return signal


def _istft_problem(input, n_fft, hop_length, win_length, window, onesided) -> str | None:
    """Returns what does not fit together in the arguments, or None."""
    if not 2 <= input.ndim <= 3:  # messages also count the dimension of real and imaginary parts
        return f"expected a tensor with 3 or 4 dimensions, but got {input.ndim + 1}"
    if not input.numel():
        return "input tensor cannot be empty."
    frequencies = input.shape[-2]
    half = frequencies != n_fft if onesided is None else onesided
    if frequencies != (n_fft // 2 + 1 if half else n_fft):
        expected = "n_fft / 2 + 1 when onesided=True" if half else "n_fft when onesided=False"
        return (
            "expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"{expected}, but got {frequencies}"
        )
    if not 0 < hop_length <= win_length:
        return "expected 0 < hop_length <= win_length"
    if not 0 < win_length <= n_fft:
        return "expected 0 < win_length <= n_fft"
    if window is not None and tuple(window.shape) != (win_length,):
        return "Invalid window shape. window has to be 1D and length of `win_length`"
    return None


def _inverse(spectra: Tensor, n_fft: int, normalized: bool, onesided: bool, return_complex: bool) -> Tensor:
    """Inverts the transform: (…, frequencies, frames) to (…, frames, points)."""
    spectra, last, scale = spectra.transpose(-1, -2), (spectra.ndim - 1,), 1 if normalized else 2
    if return_complex:
        return fft_c2c(spectra, last, scale, False)
    if not onesided:
        spectra = spectra.narrow(-1, 0, n_fft // 2 + 1)
    return fft_c2r(spectra, last, scale, n_fft, False)


def _real(dtype: dtypes.dtype) -> dtypes.dtype:
    return dtypes.float64 if dtype in (dtypes.float64, dtypes.complex128) else dtypes.float32
