"""Torchaudio's pure parts: spectrograms, filters, augmentations and models; three steps of a small recognizer."""

import json
import os
import sys
import tempfile
import warnings

import torch
import torchaudio
from torch import nn
from torchaudio import functional as F
from torchaudio import models
from torchaudio import transforms as T

warnings.simplefilter("ignore")
torch.manual_seed(0)
wave = torch.randn(2, 4000) * 0.1 + torch.sin(torch.arange(4000) * 0.3) * 0.3
rate, numbers = 8000, {}
TRANSFORMS = {
    "Spectrogram": T.Spectrogram(200),
    "MelSpectrogram": T.MelSpectrogram(rate, 256, n_mels=20),
    "MFCC": T.MFCC(rate, 13, melkwargs={"n_fft": 256, "n_mels": 20}),
    "LFCC": T.LFCC(rate, n_lfcc=13, speckwargs={"n_fft": 256}),
    "AmplitudeToDB": nn.Sequential(T.Spectrogram(200), T.AmplitudeToDB()),
    "GriffinLim": nn.Sequential(T.Spectrogram(200), T.GriffinLim(200, n_iter=3, rand_init=False)),
    "InverseSpectrogram": nn.Sequential(T.Spectrogram(200, power=None), T.InverseSpectrogram(200)),
    "Resample": T.Resample(rate, 6000),
    "Vol": T.Vol(0.5),
    "Fade": T.Fade(100, 100),
    "TimeStretch": nn.Sequential(T.Spectrogram(200, power=None), T.TimeStretch(n_freq=101, fixed_rate=1.2)),
    "SpectralCentroid": T.SpectralCentroid(rate),
    "MuLawEncoding": T.MuLawEncoding(),
    "FrequencyMasking": nn.Sequential(T.Spectrogram(200), T.FrequencyMasking(30)),
    "TimeMasking": nn.Sequential(T.Spectrogram(200), T.TimeMasking(30)),
    "Speed": T.SpeedPerturbation(rate, [0.9, 1.1]),
    "PitchShift": T.PitchShift(rate, 2),
}
for name, transform in TRANSFORMS.items():
    torch.manual_seed(1)
    out = transform(wave)
    out = (out[0] if isinstance(out, tuple) else out).detach()
    out = out.abs() if out.is_complex() else out.float()
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item()]
FUNCTIONS = {
    "biquad": lambda: F.lowpass_biquad(wave, rate, 1000),
    "highpass": lambda: F.highpass_biquad(wave, rate, 1000),
    "filtfilt": lambda: F.filtfilt(wave, torch.tensor([1.0, -0.5]), torch.tensor([0.5, 0.25])),
    "deltas": lambda: F.compute_deltas(wave[:, :200].reshape(2, 10, 20)),
    "cmvn": lambda: F.sliding_window_cmn(wave[:, :200].reshape(2, 10, 20), 5),
    "convolve": lambda: F.convolve(wave, wave[:, :50]),
    "fftconvolve": lambda: F.fftconvolve(wave, wave[:, :50]),
    "add_noise": lambda: F.add_noise(wave, wave.flip(-1), torch.tensor([10.0, 5.0])),
    "edit_distance": lambda: torch.tensor(float(F.edit_distance("kitten", "sitting"))),
    "flanger": lambda: F.flanger(wave[:, :500].unsqueeze(1), rate),
    "loudness": lambda: F.loudness(wave[None].repeat(1, 1, 4), rate),
    "overdrive": lambda: F.overdrive(wave[:, :300]),
    "kaldi": lambda: torchaudio.compliance.kaldi.fbank(wave[:1], sample_frequency=rate),
}
for name, do in FUNCTIONS.items():
    torch.manual_seed(1)
    out = do()
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item() if out.numel() > 1 else 0.0]
SMALL = {
    "Conformer": lambda: models.Conformer(20, 2, 32, 1, 7)(torch.randn(2, 12, 20), torch.tensor([12, 8]))[0],
    "ConvTasNet": lambda: models.ConvTasNet(2, 4, 16, 3, 8, 8, 2, 1)(torch.randn(1, 1, 200)),
    "DeepSpeech": lambda: models.DeepSpeech(20, 16, 5, 0.0)(torch.randn(2, 1, 12, 20)),
    "Emformer": lambda: models.Emformer(16, 2, 32, 1, 4)(torch.randn(1, 16, 16), torch.tensor([16]))[0],
    "Tacotron2": lambda: models.Tacotron2(n_symbol=10, n_mels=8, symbol_embedding_dim=16, encoder_embedding_dim=16,
        decoder_rnn_dim=16, attention_rnn_dim=16, attention_hidden_dim=8, prenet_dim=8, postnet_embedding_dim=8)(
        torch.randint(10, (1, 6)), torch.tensor([6]), torch.randn(1, 8, 10), torch.tensor([10]))[0],
    "wav2vec2": lambda: models.wav2vec2_model("layer_norm", [(16, 10, 5), (16, 3, 2)], True, 16, 0.0, 5, 4, 1, 2, 0.0, 32,
        0.0, 0.0, True, 0.0, 10)(wave[:, :400])[0],
}  # fmt: skip
for name, make in SMALL.items():
    torch.manual_seed(2)
    out = make()
    out.square().mean().backward()
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item()]

torch.manual_seed(3)
features, model = T.MFCC(rate, 13, melkwargs={"n_fft": 256, "n_mels": 20}), models.Wav2Letter(5, "mfcc", 13)
optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
inputs = features(wave)
for _ in range(3):
    optimizer.zero_grad()
    out = model(inputs).permute(2, 0, 1)
    lengths = torch.full((2,), len(out))
    loss = nn.functional.ctc_loss(out, torch.tensor([[1, 2, 3], [2, 4, 1]]), lengths, torch.tensor([3, 3]))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "letters.pt")
if not os.path.exists(file):
    torch.save({k: v.half() for k, v in model.state_dict().items()}, file)
again = models.Wav2Letter(5, "mfcc", 13)
again.load_state_dict({k: v.float() for k, v in torch.load(file).items()})
torch.testing.assert_close(again(inputs), model(inputs), rtol=0.02, atol=0.02)
print(json.dumps({"losses": losses, "numbers": numbers}))
