"""julius: resampling, filters and convolutions of sounds, and a filter that is trained through them."""

import json
import math

import julius
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
wave = torch.sin(torch.arange(2000) * 0.05 * math.pi)[None] + 0.3 * torch.randn(2, 2000)
kernel = torch.randn(1, 1, 64).requires_grad_()
target = julius.lowpass_filter(wave, 0.1)


def loss_of():
    filtered = julius.fft_conv1d(wave[:, None], kernel, padding=32)[:, 0, :2000]
    return (filtered - target).square().mean()


losses = three_steps(torch.optim.Adam([kernel], lr=0.05), loss_of)
numbers = {
    "resampled": some(julius.resample_frac(wave, 4, 5)), "up": some(julius.ResampleFrac(2, 3, zeros=12)(wave)),
    "full": some(julius.resample_frac(wave, 3, 2, full=True)), "length": some(julius.resample_frac(wave, 3, 2, output_length=700)),
    "low": some(julius.lowpass_filters(wave, [0.05, 0.2], stride=3)), "high": some(julius.highpass_filter(wave, 0.1)),
    "band": some(julius.bandpass_filter(wave, 0.05, 0.2)), "fft": some(julius.lowpass_filter(wave, 0.01, fft=True)),
    "bands": some(julius.split_bands(wave, 8000, n_bands=4)), "cut": some(julius.SplitBands(8000, cutoffs=[500, 1500])(wave)),
    "mel": julius.core.mel_frequencies(5, 10, 4000).tolist(), "volume": [julius.core.volume(wave).mean().item()],
    "noise": some(julius.core.pure_tone(440, 8000, 0.1)), "sinc": julius.core.sinc(torch.linspace(-3, 3, 7)).tolist(),
    "conv": some(julius.FFTConv1d(2, 3, 33, stride=2)(torch.randn(1, 2, 500))),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
