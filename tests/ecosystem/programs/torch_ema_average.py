"""Exponential moving averages of weights by torch_ema."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from torch_ema import ExponentialMovingAverage

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
average = ExponentialMovingAverage(model.parameters(), decay=0.9)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x, y = torch.randn(8, 4), torch.randn(8, 1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    average.update()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "average.pt")
if not os.path.exists(file):
    torch.save(average.state_dict(), file)
average.load_state_dict(torch.load(file))
with average.average_parameters():
    averaged = model(x).flatten().tolist()
print(json.dumps({"losses": losses, "numbers": {"averaged": averaged, "last": model(x).flatten().tolist()}}))
