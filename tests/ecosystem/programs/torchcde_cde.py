"""Neural CDEs of torchcde on cubic, linear and rectilinear interpolations."""

import json
import os
import sys
import tempfile

import torch
import torchcde
from torch import nn


class Function(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4 * 3)

    def forward(self, t, z):
        return torch.tanh(self.linear(z)).view(*z.shape[:-1], 4, 3)


torch.manual_seed(0)
times = torch.linspace(0, 1, 6)
x = torch.cat([times.expand(5, 6).unsqueeze(-1), torch.randn(5, 6, 2).cumsum(1)], dim=-1)
x[0, 2, 1] = float("nan")
function, start, out = Function(), nn.Linear(3, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*function.parameters(), *start.parameters(), *out.parameters()], lr=0.1)
losses = []
paths = (
    torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x)),
    torchcde.CubicSpline(torchcde.natural_cubic_coeffs(x)), torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x)),
)  # fmt: skip
for path in paths:
    optimizer.zero_grad()
    z = torchcde.cdeint(
        X=path, z0=start(path.evaluate(0.0)), func=function, t=path.interval, method="rk4", options={"step_size": 0.2}
    )
    loss = (out(z[:, -1]) - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "cde.pt")
if not os.path.exists(file):
    torch.save(function.state_dict(), file)
function.load_state_dict(torch.load(file))
numbers = {
    "path": paths[1].evaluate(torch.tensor(0.37)).flatten().tolist(),
    "slope": paths[0].derivative(torch.tensor(0.5)).flatten().tolist(),
}
print(json.dumps({"losses": losses, "numbers": numbers}))
