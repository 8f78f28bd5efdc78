"""whisper: a tiny model learns from spectrograms, is saved and loaded, and turns sound into tokens and their times."""

import json
import os
import sys
import tempfile

import torch
import whisper
from shared.training import some, three_steps
from torch import nn
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import get_tokenizer

torch.manual_seed(0)
size = ModelDimensions(80, 1500, 32, 2, 2, 51865, 64, 32, 2, 2)
model = Whisper(size)
for p in model.parameters():
    nn.init.normal_(p, std=0.05)
tokenizer = get_tokenizer(multilingual=True)
text = torch.tensor([[*tokenizer.sot_sequence, *tokenizer.encode(" a cat on the mat"), tokenizer.eot]])
sound = torch.sin(torch.arange(16000 * 2) * 0.05) * torch.rand(16000 * 2)
spectrogram = whisper.log_mel_spectrogram(whisper.pad_or_trim(sound))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
losses = three_steps(
    optimizer,
    lambda: nn.functional.cross_entropy(model(spectrogram[None], text[:, :-1]).transpose(1, 2), text[:, 1:]),
)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "tiny.pt")
if not os.path.exists(file):
    torch.save({"dims": vars(size), "model_state_dict": model.state_dict()}, file)
again = whisper.load_model(file, device="cpu")
numbers = {"spectrogram": some(spectrogram), "tokens": text[0].tolist()}
found = whisper.decode(again, spectrogram, whisper.DecodingOptions(fp16=False, language="en", sample_len=8))
numbers["greedy"] = [*found.tokens, found.avg_logprob, found.no_speech_prob]
beams = whisper.DecodingOptions(fp16=False, language="en", sample_len=6, beam_size=3, without_timestamps=True)
found = whisper.decode(again, spectrogram, beams)
numbers["beams"] = [*found.tokens, found.avg_logprob]
language, chances = again.detect_language(spectrogram)
numbers["language"] = [language.item(), *sorted(chances.values())[-3:]]
with torch.no_grad():
    numbers["logits"] = some(again(spectrogram[None], text))
print(json.dumps({"losses": losses, "numbers": numbers}))
