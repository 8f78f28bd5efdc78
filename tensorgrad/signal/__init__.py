"""`torch.signal`: signal processing. PyTorch has `windows` here; transforms are in `torch.fft` and `torch.stft`."""

from tensorgrad.signal import windows

__all__ = ["windows"]
