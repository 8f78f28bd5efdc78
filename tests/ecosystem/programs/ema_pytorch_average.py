"""Averages of models by ema-pytorch: EMA with a warm-up, and post-hoc EMA."""

import json
import os
import sys
import tempfile

import torch
from ema_pytorch import EMA, PostHocEMA
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
average = EMA(model, beta=0.9, update_after_step=0, update_every=1)
history = PostHocEMA(
    model, sigma_rels=(0.05, 0.28), update_every=1, checkpoint_every_num_steps=1, checkpoint_folder=tempfile.mkdtemp()
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(8, 4), torch.randn(8, 1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    average.update()
    history.update()
    losses.append(loss.item())
file = os.path.join(folder, "average.pt")
if not os.path.exists(file):
    torch.save(average.state_dict(), file)
average.load_state_dict(torch.load(file))
later = history.synthesize_ema_model(sigma_rel=0.15)
numbers = {"averaged": average(x).flatten().tolist(), "later": later(x).flatten().tolist()}
print(json.dumps({"losses": losses, "numbers": numbers}))
