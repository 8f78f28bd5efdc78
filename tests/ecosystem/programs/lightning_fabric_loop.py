"""Lightning's Fabric: an ordinary loop with setup, backward, clipped gradients, save and load."""

import json
import os
import sys
import tempfile
import warnings

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
fabric.seed_everything(0, verbose=False)
with fabric.init_module():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer = fabric.setup(model, optimizer)
images, labels = torch.randn(24, 1, 8, 8), torch.randint(3, (24,))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(images, labels), 8, shuffle=True))
losses, norms = [], []
for batch, targets in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), targets)
    fabric.backward(loss)
    norms.append(fabric.clip_gradients(model, optimizer, max_norm=0.5).item())
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "fabric.ckpt")
if not os.path.exists(file):
    fabric.save(file, {"model": model, "optimizer": optimizer, "step": 3})
state = {"model": model, "optimizer": optimizer, "step": 0}
with torch.no_grad():
    before = model(images)
    for parameter in model.parameters():
        parameter.zero_()
fabric.load(file, state)
torch.testing.assert_close(model(images), before, rtol=1e-3, atol=1e-3)
numbers = {"norms": norms, "step": state["step"], "gathered": fabric.all_gather(torch.ones(2)).tolist()}
print(json.dumps({"losses": losses, "numbers": numbers}))
