"""asteroid-filterbanks: analysis and synthesis of sounds by filters that are learned, or made."""

import json
import math
import sys
import tempfile

import torch
from asteroid_filterbanks import make_enc_dec, transforms
from asteroid_filterbanks.griffin_lim import griffin_lim
from shared.training import saved_and_loaded, some, three_steps
from torch import nn

torch.manual_seed(0)
wave = torch.sin(torch.arange(800) * 0.1 * math.pi)[None, None] + 0.1 * torch.randn(2, 1, 800)


def made():
    encoder, decoder = make_enc_dec("free", n_filters=16, kernel_size=16, stride=8)
    return nn.Sequential(encoder, nn.ReLU(), decoder)


model = made()
losses = three_steps(
    torch.optim.Adam(model.parameters(), lr=0.01),
    lambda: (model(wave) - wave[..., : model(wave).shape[-1]]).square().mean(),
)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
numbers = {"loaded": some(saved_and_loaded(model, made(), folder)(wave))}
for name, options in {
    "stft": {"n_filters": 32, "kernel_size": 32, "stride": 16}, "torch_stft": {"n_filters": 32, "kernel_size": 32, "stride": 8},
    "analytic_free": {"n_filters": 16, "kernel_size": 16, "stride": 8}, "param_sinc": {"n_filters": 16, "kernel_size": 17, "stride": 8},
}.items():  # fmt: skip
    encoder, decoder = make_enc_dec(name, **options)
    spectrum = encoder(wave)
    numbers[name] = [*spectrum.shape, *some(spectrum), *some(decoder(spectrum))]
    loss = spectrum.square().mean()
    trained = [p for p in encoder.parameters() if p.requires_grad]
    numbers[name] += [g.norm().item() for g in torch.autograd.grad(loss, trained)] if trained else []
spectrum = make_enc_dec("torch_stft", n_filters=32, kernel_size=32, stride=8)[0](wave)
numbers |= {
    "mag": some(transforms.mag(spectrum)), "angle": [transforms.angle(spectrum).cos().sum().item()],
    "phase": some(transforms.from_magphase(transforms.mag(spectrum), transforms.angle(spectrum))),
    "masked": some(transforms.apply_mag_mask(spectrum, torch.rand(2, spectrum.shape[1] // 2, spectrum.shape[2]))),
}  # fmt: skip
analysis, _ = make_enc_dec("stft", n_filters=32, kernel_size=32, stride=8, sample_rate=8000)
again = griffin_lim(
    transforms.mag(analysis(wave)), analysis, n_iter=3, angles=torch.zeros(2, 17, analysis(wave).shape[-1])
)
numbers["griffin_lim"] = some(again)
print(json.dumps({"losses": losses, "numbers": numbers}))
