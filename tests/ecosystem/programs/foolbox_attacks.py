"""foolbox: adversarial examples for a small trained network, found by gradients and without."""

import json

import foolbox
import numpy as np
import torch
from shared.training import some, three_steps
from torch import nn

torch.set_default_dtype(torch.float64)  # a search goes another way by the last digit
torch.manual_seed(0), np.random.seed(0)
images, labels = torch.rand(8, 1, 12, 12), torch.arange(8) % 4
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = three_steps(optimizer, lambda: nn.functional.cross_entropy(model(images), labels), steps=10)
attacked = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), preprocessing=dict(mean=[0.5], std=[0.5], axis=-3))
L2 = foolbox.distances.l2
numbers = {"accuracy": [foolbox.accuracy(attacked, images, labels)]}
for name, options in {
    "FGSM": {}, "LinfPGD": {"steps": 4}, "L2PGD": {"steps": 4}, "L2FastGradientAttack": {}, "LinfDeepFoolAttack": {},
    "L2DeepFoolAttack": {}, "L2CarliniWagnerAttack": {"steps": 4, "binary_search_steps": 2}, "DDNAttack": {"steps": 4},
    "EADAttack": {"steps": 4, "binary_search_steps": 2}, "LinfAdditiveUniformNoiseAttack": {},
    "L2AdditiveGaussianNoiseAttack": {}, "SaltAndPepperNoiseAttack": {"steps": 10},
    "LinearSearchBlendedUniformNoiseAttack": {"steps": 10, "distance": L2}, "GaussianBlurAttack": {"distance": L2}, "L2ContrastReductionAttack": {},
    "NewtonFoolAttack": {"steps": 3}, "VirtualAdversarialAttack": {"steps": 3}, "L1FMNAttack": {"steps": 4},
}.items():  # fmt: skip
    torch.manual_seed(1), np.random.seed(1)
    raw, clipped, success = getattr(foolbox.attacks, name)(**options)(attacked, images, labels, epsilons=[0.1, 1.0])
    numbers[name] = [*some(raw[0]), *some(clipped[1]), *success.float().mean(1).tolist()]
print(json.dumps({"losses": losses, "numbers": numbers}))
