"""torchattacks: attacks of many kinds on a small trained network."""

import json
import random

import numpy as np
import torch
import torchattacks
from shared.training import some, three_steps
from torch import nn

torch.manual_seed(0)
images, labels = torch.rand(8, 3, 16, 16), torch.arange(8) % 4
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
    nn.Linear(1024, 4),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = three_steps(optimizer, lambda: nn.functional.cross_entropy(model(images), labels))
model.eval()
attacks = {
    "FGSM": {}, "BIM": {"steps": 3}, "PGD": {"steps": 3}, "PGDL2": {"steps": 3}, "EOTPGD": {"steps": 2},
    "TPGD": {"steps": 3}, "FFGSM": {}, "RFGSM": {"steps": 3}, "MIFGSM": {"steps": 3}, "DIFGSM": {"steps": 3},
    "TIFGSM": {"steps": 3}, "NIFGSM": {"steps": 3}, "SINIFGSM": {"steps": 2}, "VMIFGSM": {"steps": 2, "N": 2},
    "VNIFGSM": {"steps": 2, "N": 2}, "CW": {"steps": 3}, "DeepFool": {"steps": 3}, "FAB": {"steps": 2, "n_classes": 4},
    "APGD": {"steps": 3}, "Square": {"n_queries": 10}, "SparseFool": {"steps": 2}, "Pixle": {"max_iterations": 2}, "EADEN": {"max_iterations": 10, "binary_search_steps": 2},
    "GN": {}, "Jitter": {"steps": 3}, "UPGD": {"steps": 3}, "SPSA": {"nb_iter": 2, "nb_sample": 8},
}  # fmt: skip
numbers = {}
for name, options in attacks.items():
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    numbers[name] = some(getattr(torchattacks, name)(model, **options)(images[:4], labels[:4]))
targeted = torchattacks.PGD(model, steps=3)
targeted.set_mode_targeted_by_label(quiet=True)
torch.manual_seed(1)
numbers["targeted"] = some(targeted(images, (labels + 1) % 4))
print(json.dumps({"losses": losses, "numbers": numbers}))
