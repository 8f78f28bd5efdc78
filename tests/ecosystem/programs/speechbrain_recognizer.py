"""speechbrain: a recognizer with CTC trained by a Brain, speakers, separation and a conformer; features, checkpoints."""

import json
import logging
import os
import sys
import tempfile
import warnings

import speechbrain as sb
import torch
from speechbrain.augment.time_domain import DropChunk, DropFreq, SpeedPerturb
from speechbrain.decoders.ctc import ctc_greedy_decode
from speechbrain.lobes.features import MFCC, Fbank
from speechbrain.lobes.models.conv_tasnet import MaskNet
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.lobes.models.dual_path import Decoder, Encoder
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN, Classifier
from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.losses import ctc_loss, get_si_snr_with_pitwrapper, kldiv_loss, nll_loss
from speechbrain.nnet.schedulers import NoamScheduler
from speechbrain.processing.features import InputNormalization
from speechbrain.utils.checkpoints import Checkpointer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.disable(logging.ERROR)

torch.manual_seed(0)
time = torch.arange(8000) / 16000
waves = torch.stack([(2 * torch.pi * f * time * (1 + time)).sin() for f in (200, 300, 500, 800)])
waves = waves + 0.05 * torch.randn_like(waves)
lengths = torch.tensor([1.0, 0.9, 0.8, 0.7])
texts, text_lengths = torch.randint(1, 10, (4, 6)), torch.tensor([1.0, 0.5, 1.0, 0.5])
folder, losses, numbers = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), [], {}
fbank, normalize = Fbank(n_mels=24), InputNormalization(norm_type="sentence")
with torch.no_grad():
    numbers["features"] = [fbank(waves).norm().item(), MFCC(n_mels=24, deltas=True)(waves).norm().item()]


class Recognizer(sb.Brain):
    def compute_forward(self, batch, stage):
        sounds, lens, *_ = batch
        features = self.modules.normalize(fbank(sounds), lens)
        return self.modules.output(self.modules.net(features)).log_softmax(-1)

    def compute_objectives(self, predictions, batch, stage):
        _, lens, labels, label_lens = batch
        loss = ctc_loss(predictions, labels, lens, label_lens, blank_index=0)
        if stage == sb.Stage.TRAIN:
            losses.append(loss.item())
        else:
            self.decoded = ctc_greedy_decode(predictions, lens, blank_id=0)
            numbers["valid"] = loss.item()
        return loss

    def on_fit_start(self):
        super().on_fit_start()
        self.checkpointer.recover_if_possible()


def recognizer(folder):
    torch.manual_seed(1)
    net = CRDNN(
        input_size=24, cnn_blocks=1, cnn_channels=(8,), rnn_layers=1, rnn_neurons=16, dnn_blocks=1, dnn_neurons=16,
        time_pooling=True, dropout=0.1,
    )  # fmt: skip
    modules = {"normalize": normalize, "net": net, "output": Linear(n_neurons=10, input_size=16)}
    saved = Checkpointer(folder, {"net": net, "output": modules["output"]})
    return Recognizer(modules, lambda p: torch.optim.Adam(p, 1e-3, eps=1e-4), {}, checkpointer=saved)


brain = recognizer(os.path.join(folder, "first"))
batch = (waves, lengths, texts, text_lengths)
had = brain.checkpointer.list_checkpoints()
new = recognizer(tempfile.mkdtemp())
loader = DataLoader(TensorDataset(*batch), 4)
new.fit(range(3), loader, loader, progressbar=False)
if not had:
    brain.modules.load_state_dict(new.modules.state_dict())
    brain.checkpointer.save_checkpoint(name="trained")
again = recognizer(os.path.join(folder, "first"))
again.checkpointer.recover_if_possible()
again.modules.eval()
with torch.no_grad():
    output = again.compute_forward(batch, sb.Stage.VALID)
numbers["recognized"] = [output.norm().item(), output[0, 0].tolist(), sum(map(len, new.decoded))]


def three(modules, loss_of):
    optimizer = torch.optim.Adam(modules.parameters(), 1e-3, eps=1e-4)
    schedule = NoamScheduler(lr_initial=1e-3, n_warmup_steps=2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(modules.parameters(), 5.0)
        optimizer.step()
        schedule(optimizer)
        losses.append(loss.item())


torch.manual_seed(2)
features = fbank(waves).detach()
speakers = nn.ModuleDict({
    "net": ECAPA_TDNN(24, channels=[16, 16, 16, 16, 48], attention_channels=8, lin_neurons=12, res2net_scale=4),
    "classes": Classifier(12, out_neurons=4),
})  # fmt: skip
three(
    speakers,
    lambda: nll_loss(speakers["classes"](speakers["net"](features, lengths)).log_softmax(-1), torch.arange(4)[:, None]),
)
encoder, decoder = Encoder(16, 12), Decoder(12, 1, kernel_size=16, stride=8, bias=False)
masks = MaskNet(N=12, B=8, H=16, P=3, X=2, R=1, C=2, norm_type="gLN", causal=False, mask_nonlinear="relu")
mixture, sources = waves[:2] + waves[2:], torch.stack([waves[:2], waves[2:]], -1)


def separated():
    coded = encoder(mixture)
    parts = masks(coded)
    found = torch.stack([decoder(coded * parts[i])[:, : mixture.shape[1]] for i in range(2)], -1)
    size = found.shape[1]
    return get_si_snr_with_pitwrapper(sources[:, :size], found).mean()


three(nn.ModuleList([encoder, decoder, masks]), separated)
conformer = TransformerASR(
    tgt_vocab=12, input_size=24, d_model=16, nhead=2, num_encoder_layers=1, num_decoder_layers=1, d_ffn=32,
    encoder_module="conformer", attention_type="RelPosMHAXL", dropout=0.1, kernel_size=5, normalize_before=True,
)  # fmt: skip
head = nn.Linear(16, 12)


def conformed():
    _, decoded = conformer(features[:, ::4], texts, lengths, pad_idx=0)
    return kldiv_loss(head(decoded).log_softmax(-1), texts, length=text_lengths, label_smoothing=0.1)


three(nn.ModuleList([conformer, head]), conformed)
torch.manual_seed(3)
with torch.no_grad():
    numbers["augmented"] = [
        SpeedPerturb(16000, [90])(waves).norm().item(),
        DropFreq(drop_freq_count_high=2)(waves).norm().item(),
        DropChunk(drop_length_high=400, drop_count_high=3)(waves, lengths).norm().item(),
    ]
print(json.dumps({"losses": losses, "numbers": numbers}))
