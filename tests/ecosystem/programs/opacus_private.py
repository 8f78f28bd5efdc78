"""Differentially private training by opacus: gradients per sample, clipped and with noise."""

import json
import os
import sys
import tempfile
import warnings

import torch
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)
)
assert ModuleValidator.is_valid(model) and not ModuleValidator.is_valid(nn.BatchNorm1d(3))
data = torch.utils.data.TensorDataset(torch.randn(12, 1, 8, 8), torch.arange(12) % 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=4)
engine = PrivacyEngine(accountant="rdp")
model, optimizer, loader = engine.make_private(
    module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.1, max_grad_norm=1.0,
    noise_generator=torch.Generator().manual_seed(7), batch_first=True,
)  # fmt: skip
losses = []
for images, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "private.pt")
if not os.path.exists(file):
    engine.save_checkpoint(path=file, module=model, optimizer=optimizer)
before = model(data.tensors[0])
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
engine.load_checkpoint(path=file, module=model, optimizer=optimizer)
torch.testing.assert_close(model(data.tensors[0]), before)

sequence = GradSampleModule(nn.Sequential(nn.Embedding(7, 5), nn.LayerNorm(5), nn.Linear(5, 3)), batch_first=True)
nn.functional.mse_loss(sequence(torch.arange(6).reshape(2, 3)), torch.zeros(2, 3, 3)).backward()
samples = [parameter.grad_sample.flatten(1).sum(1).tolist() for parameter in sequence.parameters()]
numbers = {
    "logits": before[0].tolist(), "epsilon": [engine.get_epsilon(1e-5)], "samples": samples,
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
