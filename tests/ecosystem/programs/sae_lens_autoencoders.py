"""sae-lens: sparse autoencoders of six kinds, three steps each on activations, saved and loaded."""

import json
import os
import sys
import tempfile
import warnings

import sae_lens as s
import torch
from sae_lens.saes.sae import TrainStepInput

warnings.simplefilter("ignore")
COMMON = dict(d_in=12, d_sae=24, decoder_init_norm=0.5)
KINDS = {
    "standard": (s.StandardTrainingSAE, s.StandardTrainingSAEConfig(**COMMON, l1_coefficient=0.1)),
    "topk": (s.TopKTrainingSAE, s.TopKTrainingSAEConfig(**COMMON, k=4)),
    "batchtopk": (s.BatchTopKTrainingSAE, s.BatchTopKTrainingSAEConfig(**COMMON, k=4)),
    "jumprelu": (s.JumpReLUTrainingSAE, s.JumpReLUTrainingSAEConfig(**COMMON, l0_coefficient=0.1)),
    "gated": (s.GatedTrainingSAE, s.GatedTrainingSAEConfig(**COMMON, l1_coefficient=0.1)),
    "matryoshka": (
        s.MatryoshkaBatchTopKTrainingSAE,
        s.MatryoshkaBatchTopKTrainingSAEConfig(**COMMON, k=4, matryoshka_widths=[8, 24]),
    ),
}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
generator = torch.Generator().manual_seed(1)
directions = torch.randn(30, 12, generator=generator)
activations = (torch.rand(3, 64, 30, generator=generator) > 0.9).float() @ directions
losses, numbers = [], {}
for name, (kind, config) in KINDS.items():
    torch.manual_seed(0)
    sae = kind(config)
    optimizer = torch.optim.Adam(sae.parameters(), 1e-2)
    dead = torch.arange(24) < 3
    for step, batch in enumerate(activations):
        weights = {
            key: value.value if hasattr(value, "value") else value for key, value in sae.get_coefficients().items()
        }
        told = sae.training_forward_pass(TrainStepInput(batch, weights, dead, step, False))
        optimizer.zero_grad()
        told.loss.backward()
        optimizer.step()
        losses.append(told.loss.item())
    file = os.path.join(folder, name)
    if not os.path.exists(file):
        os.mkdir(file)
        sae.save_inference_model(file)
    loaded = s.SAE.load_from_disk(file)
    with torch.no_grad():
        found = loaded.encode(activations[0])
        back = loaded.decode(found)
    numbers[name] = [
        sorted([key, value.item()] for key, value in told.losses.items()), loaded.cfg.architecture(),
        (found > 0).sum(-1).tolist()[:8], found.norm().item(), back[:2].tolist(),
    ]  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
