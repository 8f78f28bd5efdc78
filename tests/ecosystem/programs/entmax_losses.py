"""Sparse softmaxes and their losses of entmax."""

import json

import torch
from entmax import (
    Entmax15,
    Entmax15Loss,
    EntmaxBisectLoss,
    Sparsemax,
    SparsemaxLoss,
    budget_bisect,
    entmax15,
    entmax_bisect,
    normmax_bisect,
    sparsemax,
)
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 5)
x, y = torch.randn(8, 6), torch.arange(8) % 5
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for function in (Entmax15Loss(), SparsemaxLoss(), EntmaxBisectLoss(alpha=1.7)):
    optimizer.zero_grad()
    loss = function(model(x), y).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
alpha = torch.tensor(1.3, requires_grad=True)
entmax_bisect(model(x).detach(), alpha).square().sum().backward()
scores = 3 * model(x).detach()
numbers = {
    "sparsemax": sparsemax(scores, dim=-1)[0].tolist(), "entmax": entmax15(scores, dim=-1)[0].tolist(), "alpha": [alpha.grad.item()],
    "module": Sparsemax(dim=0)(scores)[0].tolist(), "other": Entmax15(dim=0)(scores)[0].tolist(),
    "normmax": normmax_bisect(scores, alpha=2)[0].tolist(), "budget": budget_bisect(scores, budget=2)[0].tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
