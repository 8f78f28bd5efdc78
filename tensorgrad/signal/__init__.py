"""`torch.signal`: signal processing. It contains `windows`; transforms are in `torch.fft` and `torch.stft`."""

from tensorgrad.signal import windows

__all__ = ["windows"]
