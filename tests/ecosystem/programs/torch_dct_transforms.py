"""torch-dct: cosine transforms, and a layer of them in a small network."""

import json

import torch
import torch_dct
from shared.training import some, three_steps
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(8, 16), torch.randn(8, 1)
model = nn.Sequential(torch_dct.LinearDCT(16, "dct", norm="ortho"), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
losses = three_steps(optimizer, lambda: nn.functional.mse_loss(model(torch_dct.dct(x, norm="ortho")), y))
cube = torch.randn(2, 4, 6, 8, requires_grad=True)
numbers = {
    "one": [*some(torch_dct.dct1(x)), *some(torch_dct.idct1(torch_dct.dct1(x)))], "two": [*some(torch_dct.dct(x)), *some(torch_dct.idct(torch_dct.dct(x)))],
    "ortho": some(torch_dct.idct(x, norm="ortho")), "plane": [*some(torch_dct.dct_2d(cube)), *some(torch_dct.idct_2d(cube, norm="ortho"))],
    "space": [*some(torch_dct.dct_3d(cube)), *some(torch_dct.idct_3d(torch_dct.dct_3d(cube)))],
    "gradient": some(torch.autograd.grad(torch_dct.dct_3d(cube).square().sum(), cube)[0]),
    "linear": [*some(torch_dct.apply_linear_2d(x.view(2, 4, 16)[..., :4], torch_dct.LinearDCT(4, "dct"))), *some(torch_dct.LinearDCT(16, "idct1")(x))],
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
