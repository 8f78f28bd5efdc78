"""Low-rank adapters of loralib: linear, merged, embedding and convolution layers."""

import json
import os
import sys
import tempfile

import loralib
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(
        loralib.Embedding(10, 8, r=2), loralib.Linear(8, 8, r=2, lora_alpha=4),
        loralib.MergedLinear(8, 12, r=2, enable_lora=[True, False, True]), nn.Linear(12, 3),
    )  # fmt: skip


model = make()
loralib.mark_only_lora_as_trainable(model, bias="lora_only")
tokens, labels = torch.randint(10, (6, 4)), torch.arange(6) % 3
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).mean(1), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "lora.pt")
if not os.path.exists(file):
    torch.save(loralib.lora_state_dict(model, bias="lora_only"), file)
again = make()
again.load_state_dict(torch.load(file), strict=False)
again.eval(), model.eval()
torch.testing.assert_close(again(tokens), model(tokens))
print(
    json.dumps(
        {"losses": losses, "numbers": {"out": again(tokens)[0].tolist(), "names": [len(list(torch.load(file)))]}}
    )
)
