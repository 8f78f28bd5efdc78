"""The table of torchsummary for a network that is then trained."""

import contextlib
import io
import json
import zlib

import torch
from torch import nn
from torchsummary import summary

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4))
told = io.StringIO()
with contextlib.redirect_stdout(told):
    summary(model, (3, 8, 8), device="cpu")
images, labels = torch.randn(4, 3, 8, 8), torch.arange(4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "numbers": {"text": [zlib.crc32(told.getvalue().encode())]}}))
