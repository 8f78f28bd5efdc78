"""torchopt: differentiable optimizers that look into a module's tables, functional ones, and implicit gradients."""

import json
import sys
import tempfile

import torch
import torchopt
from shared.training import saved_and_loaded, some, three_steps
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randn(8, 1)


def made():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


model, numbers = made(), {}
losses = three_steps(torchopt.AdamW(model.parameters(), lr=0.05), lambda: nn.functional.mse_loss(model(x), y))
# Two steps inside, through which the loss after them is differentiated by what scales the inner loss.
for name, kind in {"sgd": torchopt.MetaSGD, "adam": torchopt.MetaAdam, "rmsprop": torchopt.MetaRMSProp}.items():
    inner, weight = made(), torch.tensor([1.0, 0.5], requires_grad=True)
    optimizer = kind(inner, lr=0.1)
    before = torchopt.extract_state_dict(inner, by="reference"), torchopt.extract_state_dict(optimizer, by="reference")
    for _ in range(2):
        out = inner(x)
        optimizer.step(weight[0] * nn.functional.mse_loss(out, y) + weight[1] * out.square().mean())
    outer = nn.functional.mse_loss(inner(x), y)
    outer.backward()
    numbers[name] = [outer.item(), *weight.grad.tolist(), *some(inner[0].weight)]
    torchopt.recover_state_dict(inner, before[0]), torchopt.recover_state_dict(optimizer, before[1])
    numbers[name] += [nn.functional.mse_loss(inner(x), y).item()]
    torchopt.stop_gradient(inner)
parameters = tuple(p.detach().clone().requires_grad_() for p in model.parameters())
optimizer = torchopt.chain(
    torchopt.clip.clip_grad_norm(1.0), torchopt.adam(lr=torchopt.schedule.linear_schedule(0.1, 0.01, 3, 0))
)
state = optimizer.init(parameters)
for _ in range(3):
    a, b, c, d = parameters
    loss = nn.functional.mse_loss(torch.tanh(x @ a.T + b) @ c.T + d, y)
    updates, state = optimizer.update(torch.autograd.grad(loss, parameters), state, inplace=False)
    parameters = torchopt.apply_updates(parameters, updates, inplace=False)
    numbers.setdefault("functional", []).append(loss.item())


@torchopt.diff.implicit.custom_root(lambda w, s: 2 * (w - s * x.mean(0)), argnums=1)
def root(w, s):
    return (s * x.mean(0)).detach() + 0 * w.detach()


scale = torch.tensor(2.0, requires_grad=True)
root(torch.zeros(4, requires_grad=True), scale).square().sum().backward()
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
numbers |= {"implicit": [scale.grad.item()], "loaded": some(saved_and_loaded(model, made(), folder)(x))}
print(json.dumps({"losses": losses, "numbers": numbers}))
