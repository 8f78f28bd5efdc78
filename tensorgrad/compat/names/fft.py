"""`torch.fft`: discrete Fourier transforms under PyTorch's (and NumPy's) names. The ops are in `ops/signal/fft.py`."""

from __future__ import annotations

from tensorgrad.dispatch.guard import guarded as _guarded
from tensorgrad.ops.signal.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

globals().update(_guarded({name: globals()[name] for name in __all__}, "tensorgrad.fft", numpy_names=True))
