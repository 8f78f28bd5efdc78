"""geomloss: losses between clouds of points, whose gradients move one to the other."""

import json

import torch
from geomloss import SamplesLoss
from shared.training import some, three_steps

torch.manual_seed(0)
x, y = torch.randn(12, 2).requires_grad_(), torch.randn(15, 2) + 1
losses = three_steps(torch.optim.SGD([x], lr=2.0), lambda: SamplesLoss("sinkhorn", p=2, blur=0.1)(x, y))
weights = torch.softmax(torch.randn(12), 0), torch.softmax(torch.randn(15), 0)
numbers = {}
for name, options in {
    "first": {"loss": "sinkhorn", "p": 1, "blur": 0.05}, "debiased": {"loss": "sinkhorn", "p": 2, "blur": 0.5, "debias": False},
    "unbalanced": {"loss": "sinkhorn", "p": 2, "blur": 0.1, "reach": 0.5}, "gaussian": {"loss": "gaussian", "blur": 0.5},
    "energy": {"loss": "energy"}, "laplacian": {"loss": "laplacian", "blur": 0.5},
}.items():  # fmt: skip
    loss = SamplesLoss(backend="tensorized", **options)(weights[0], x, weights[1], y)
    numbers[name] = [loss.item(), *some(torch.autograd.grad(loss, x)[0])]
f, g = SamplesLoss("sinkhorn", p=2, blur=0.2, potentials=True, backend="tensorized")(x.detach(), y)
numbers["potentials"] = [*some(f), *some(g)]
batch = SamplesLoss("sinkhorn", p=2, blur=0.2, backend="tensorized")(torch.randn(3, 6, 2), torch.randn(3, 7, 2))
numbers["batch"] = batch.tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
