"""Twenty-four optimizers, a schedule and losses of pytorch-optimizer: three steps each on the same small network."""

import json
import os
import sys
import tempfile

import torch
from pytorch_optimizer import SAM, BCEFocalLoss, Lookahead, get_chebyshev_schedule, load_optimizer
from torch import nn

NAMES = [
    "adabelief",
    "adabound",
    "adafactor",
    "adai",
    "adamp",
    "adan",
    "adapnm",
    "adahessian",
    "adamod",
    "apollo",
    "diffgrad",
    "fromage",
    "lamb",
    "lars",
    "lion",
    "madgrad",
    "novograd",
    "padam",
    "ranger",
    "radam",
    "sm3",
    "sophiah",
    "yogi",
    "tiger",
]
SECOND_ORDER = ("adahessian", "sophiah")
torch.manual_seed(0)
x, y = torch.randn(16, 4), torch.arange(16) % 3
losses, numbers = [], {}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


for name in NAMES:
    model = network()
    optimizer = load_optimizer(name)(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward(create_graph=name in SECOND_ORDER)
        optimizer.step()
        losses.append(loss.item())
    numbers[name] = model[0].weight[0].tolist()
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(optimizer.state_dict(), file)
    optimizer.load_state_dict(torch.load(file, weights_only=False))

model = network()
optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1), k=2)
for loss_function in (BCEFocalLoss(), BCEFocalLoss(gamma=1.0), nn.CrossEntropyLoss()):
    optimizer.zero_grad()
    loss = loss_function(model(x).sigmoid(), nn.functional.one_hot(y, 3).float())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
nn.functional.cross_entropy(model(x), y).backward()
optimizer.first_step(zero_grad=True)
nn.functional.cross_entropy(model(x), y).backward()
optimizer.second_step(zero_grad=True)
numbers["sam"] = model[0].weight[0].tolist()
numbers["chebyshev"] = [get_chebyshev_schedule(torch.optim.SGD(model.parameters(), lr=1.0), 4).get_last_lr()[0]]
print(json.dumps({"losses": losses, "numbers": numbers}))
