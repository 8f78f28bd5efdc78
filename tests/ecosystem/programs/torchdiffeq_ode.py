"""Neural ODEs of torchdiffeq: several solvers, the adjoint method and events."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y**3)


torch.manual_seed(0)
true = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
start, times = torch.tensor([[2.0, 0.0]]), torch.linspace(0.0, 1.0, 8)
target = odeint(lambda t, y: y**3 @ true, start, times, method="dopri5")
model = Dynamics()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
losses = []
for solve, method in ((odeint, "dopri5"), (odeint_adjoint, "dopri5"), (odeint, "rk4"), (odeint_adjoint, "midpoint")):
    optimizer.zero_grad()
    loss = (solve(model, start, times, method=method) - target).abs().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "ode.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Dynamics()
again.load_state_dict(torch.load(file))
ends = {}
with torch.no_grad():
    for method in ("euler", "bosh3", "fehlberg2", "adaptive_heun", "dopri8", "explicit_adams", "implicit_adams"):
        ends[method] = odeint(again, start, times, method=method)[-1].flatten().tolist()
height = torch.tensor(10.0, requires_grad=True)
moment, _ = odeint_event(
    lambda t, state: (state[1], torch.full_like(state[1], -9.8)), (height, torch.tensor(0.0)), torch.tensor(0.0),
    event_fn=lambda t, state: state[0], method="dopri5",
)  # fmt: skip
moment.backward()
numbers = {"target": target.flatten().tolist(), "event": [moment.item(), height.grad.item()], **ends}
print(json.dumps({"losses": losses, "numbers": numbers}))
