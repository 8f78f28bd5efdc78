"""The optimizer Lion of lion-pytorch."""

import json
import os
import sys
import tempfile

import torch
from lion_pytorch import Lion
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
x, y = torch.randn(8, 4), torch.randn(8, 1)
losses = []
optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=1e-2)
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "lion.pt")
if not os.path.exists(file):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
loaded = torch.load(file)
model.load_state_dict(loaded["model"]), optimizer.load_state_dict(loaded["optimizer"])
print(json.dumps({"losses": losses, "numbers": {"out": model(x).flatten().tolist()}}))
