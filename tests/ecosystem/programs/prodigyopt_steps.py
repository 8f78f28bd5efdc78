"""prodigyopt: the optimizer that finds its own learning rate, with its options; saved and loaded."""

import json
import os
import sys
import tempfile

import torch
from prodigyopt import Prodigy
from shared.training import some, three_steps
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 5)
y = torch.sin(x.sum(1, keepdim=True))
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for i, options in enumerate(({}, {"weight_decay": 0.1, "safeguard_warmup": True}, {"decouple": False, "slice_p": 3},
                             {"use_bias_correction": True, "d_coef": 2.0})):  # fmt: skip
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = Prodigy(model.parameters(), **options)
    loss_of = lambda model=model: nn.functional.mse_loss(model(x), y)
    numbers[f"losses {i}"] = three_steps(optimizer, loss_of, steps=8)
    file = os.path.join(folder, f"{i}.pt")
    if not os.path.exists(file):
        torch.save([model.state_dict(), optimizer.state_dict()], file)
    weights, state = torch.load(file)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    numbers[f"losses {i}"] += three_steps(optimizer, loss_of)
    losses += numbers[f"losses {i}"]
    numbers[f"rate {i}"] = [optimizer.param_groups[0]["d"], *some(model[0].weight)]
print(json.dumps({"losses": losses, "numbers": numbers}))
