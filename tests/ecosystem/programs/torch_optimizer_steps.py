"""Eighteen optimizers of torch-optimizer: three steps each."""

import json
import os
import sys
import tempfile
import warnings

import torch
import torch_optimizer
from torch import nn

warnings.simplefilter("ignore")
NAMES = [
    "A2GradExp",
    "AccSGD",
    "AdaBelief",
    "AdaBound",
    "Adafactor",
    "AdaMod",
    "AdamP",
    "AggMo",
    "Apollo",
    "DiffGrad",
    "Lamb",
    "LARS",
    "MADGRAD",
    "NovoGrad",
    "PID",
    "QHAdam",
    "QHM",
    "RAdam",
    "Ranger",
    "SGDP",
    "SGDW",
    "SWATS",
    "Yogi",
]
torch.manual_seed(0)
x, y = torch.randn(16, 4), torch.arange(16) % 3
losses, numbers = [], {}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name in NAMES:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = getattr(torch_optimizer, name)(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numbers[name] = model[0].weight[0].tolist()
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(optimizer.state_dict(), file)
    optimizer.load_state_dict(torch.load(file, weights_only=False))
print(json.dumps({"losses": losses, "numbers": numbers}))
