"""schedulefree: its optimizers train a network, change between training and evaluation, and are saved and loaded."""

import json
import os
import sys
import tempfile

import schedulefree
import torch
from shared.training import some, three_steps
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 5)
y = torch.sin(x.sum(1, keepdim=True))
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
KINDS = {
    "SGDScheduleFree": dict(lr=0.5, warmup_steps=2), "AdamWScheduleFree": dict(lr=0.05, weight_decay=0.01),
    "AdamWScheduleFree foreach": dict(lr=0.05, foreach=True), "RAdamScheduleFree": dict(lr=0.05),
    "SGDScheduleFreeClosure": dict(lr=0.5), "AdamWScheduleFreeClosure": dict(lr=0.05),
}  # fmt: skip
losses, numbers = [], {}
for name, options in KINDS.items():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = getattr(schedulefree, name.split()[0])(model.parameters(), **options)
    if name.endswith("Closure"):

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        numbers[name] = [optimizer.step(closure).item() for _ in range(4)]
    else:
        optimizer.train()
        numbers[name] = three_steps(optimizer, lambda model=model: nn.functional.mse_loss(model(x), y), steps=4)
        optimizer.eval()
        file = os.path.join(folder, f"{name}.pt")
        if not os.path.exists(file):
            torch.save([model.state_dict(), optimizer.state_dict()], file)
        weights, state = torch.load(file)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        optimizer.train()
        numbers[name] += three_steps(optimizer, lambda model=model: nn.functional.mse_loss(model(x), y), steps=2)
    losses += numbers[name]
    numbers[f"{name} weight"] = some(model[0].weight)
print(json.dumps({"losses": losses, "numbers": numbers}))
