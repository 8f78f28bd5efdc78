"""einx: operations by notation, and layers whose sizes follow from it."""

import json

import einx
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
x, y = torch.randn(4, 6, 8), torch.randn(4, 6, 5)
weight, bias = torch.randn(8, 5).mul_(0.3).requires_grad_(), torch.zeros(5, requires_grad=True)


def loss_of():
    out = einx.add("b s c, c", einx.dot("b s [i], [i] c -> b s c", x, weight), bias)
    return einx.mean("[b s c]", (out - y) ** 2)


losses = three_steps(torch.optim.SGD([weight, bias], lr=0.1), loss_of)
index = torch.randint(0, 6, (4, 3))
numbers = {
    "rearranged": some(einx.id("b (s2 s) c -> b s (s2 c)", x, s=3)), "sum": some(einx.sum("b [s] c", x)),
    "max": some(einx.max("b (s [s2]) c", x, s2=2)), "var": some(einx.var("b s [c]", x)), "kept": some(einx.mean("b [s] c -> b 1 c", x)),
    "softmax": some(einx.softmax("b s [c]", x)), "multiplied": some(einx.multiply("b s c, b s -> b s c", x, x[..., 0])),
    "heads": some(einx.dot("b q (h [c]), b k (h [c]) -> b h q k", x, x, h=2)), "flipped": some(einx.flip("b [s] c", x)),
    "taken": some(einx.get_at("b [s] c, b i -> b i c", x, index)), "where": some(einx.where("b s c, , b s c", x > 0, 0.0, x)),
    "rolled": some(einx.roll("b [s] c", x, shift=2)), "log": some(einx.logsumexp("b s [c]", x)),
    "joined": some(einx.id("b s c1, b s c2 -> b s (c1 + c2)", x, y)),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
