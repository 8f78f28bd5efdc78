"""Neural SDEs of torchsde: Itô and Stratonovich, several solvers, and the adjoint method."""

import json
import os
import sys
import tempfile

import torch
import torchsde
from torch import nn


class Process(nn.Module):
    def __init__(self, sde_type, noise_type="diagonal"):
        super().__init__()
        self.sde_type, self.noise_type = sde_type, noise_type
        self.drift, self.spread = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t, y):
        return torch.tanh(self.drift(y)) - y

    def g(self, t, y):
        return 0.3 * torch.sigmoid(self.spread(y))


torch.manual_seed(0)
start, times = torch.randn(4, 3), torch.linspace(0, 1, 5)
losses = []
choices = (
    (torchsde.sdeint, "ito", "euler"),
    (torchsde.sdeint, "ito", "srk"),
    (torchsde.sdeint_adjoint, "stratonovich", "midpoint"),
)
for solve, kind, method in choices:
    torch.manual_seed(1)
    process = Process(kind)
    optimizer = torch.optim.Adam(process.parameters(), lr=0.05)
    noise = torchsde.BrownianInterval(0.0, 1.0, size=(4, 3), entropy=5, levy_area_approximation="space-time")
    for _ in range(3):
        optimizer.zero_grad()
        loss = solve(process, start, times, bm=noise, method=method, dt=0.1)[-1].square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "sde.pt")
if not os.path.exists(file):
    torch.save(process.state_dict(), file)
again = Process("stratonovich")
again.load_state_dict(torch.load(file))
with torch.no_grad():
    path = torchsde.sdeint(again, start, times, bm=noise, method="reversible_heun", dt=0.1)
increments = [noise(i / 4, (i + 1) / 4).flatten().tolist() for i in range(4)]
print(json.dumps({"losses": losses, "numbers": {"path": path[:, 0].tolist(), "increments": increments}}))
