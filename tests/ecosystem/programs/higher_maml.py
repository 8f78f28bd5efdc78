"""Meta-learning by higher: gradients through the steps of inner optimizers."""

import json
import os
import sys
import tempfile

import higher
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(1, 16), nn.BatchNorm1d(16, affine=True, track_running_stats=False), nn.ReLU(), nn.Linear(16, 1)
)
outer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
inner_options = (
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.Adam, {"lr": 0.01}),
    (torch.optim.RMSprop, {"lr": 0.01}),
)
for step in range(3):
    kind, options = inner_options[step]
    outer.zero_grad()
    total = 0.0
    for task in range(2):
        amplitude, phase = 1.0 + task, 0.5 * task
        x = torch.rand(10, 1) * 6 - 3
        y = amplitude * torch.sin(x + phase)
        inner = kind(model.parameters(), **options)
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False, track_higher_grads=True) as (fast, change):
            for _ in range(2):
                change.step(nn.functional.mse_loss(fast(x[:5]), y[:5]))
            loss = nn.functional.mse_loss(fast(x[5:]), y[5:])
            loss.backward()
            total += loss.item()
    outer.step()
    losses.append(total)

rate = torch.tensor(0.05, requires_grad=True)
inner = torch.optim.SGD(model.parameters(), lr=1.0)
with higher.innerloop_ctx(model, inner, override={"lr": [rate]}) as (fast, change):
    change.step(nn.functional.mse_loss(fast(x), y))
    nn.functional.mse_loss(fast(x), y).backward()

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "maml.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
before = model(x)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
model.load_state_dict(torch.load(file))
torch.testing.assert_close(model(x), before)
print(json.dumps({"losses": losses, "numbers": {"rate": [rate.grad.item()], "out": before.flatten().tolist()}}))
