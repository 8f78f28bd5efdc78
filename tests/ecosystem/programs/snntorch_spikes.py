"""Spiking networks of snntorch, trained with surrogate gradients."""

import json
import os
import sys
import tempfile

import snntorch as snn
import torch
from snntorch import functional, spikegen, surrogate, utils
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(6, 10), snn.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid(), init_hidden=True, learn_beta=True),
    nn.Linear(10, 3), snn.Synaptic(alpha=0.8, beta=0.9, init_hidden=True, output=True),
)  # fmt: skip
x, y = spikegen.rate(torch.rand(8, 6), num_steps=7), torch.arange(8) % 3
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
objective = functional.ce_rate_loss()
losses = []


def run():
    utils.reset(model)
    return torch.stack([model(step)[0] for step in x])


for _ in range(3):
    optimizer.zero_grad()
    spikes = run()
    loss = objective(spikes, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "spikes.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
model.load_state_dict(torch.load(file), strict=False)
numbers = {"spikes": run().sum(0).flatten().tolist(), "accuracy": [float(functional.accuracy_rate(spikes, y))]}
print(json.dumps({"losses": losses, "numbers": numbers}))
