"""nnsight: reads and changes what happens within a network, and its gradients."""

import json

import torch
from nnsight import NNsight
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.relu(self.first(x)))))


torch.manual_seed(0)
net = Net()
inputs, labels = torch.randn(5, 6), torch.randint(3, (5,))
optimizer, losses = torch.optim.SGD(net.parameters(), 0.1), []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(inputs), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model = NNsight(net)
with model.trace(inputs):
    hidden = model.first.output.save()
    seen = model.second.input.save()
    plain = model.output.save()
with model.trace(inputs):
    model.first.output[:, 2] = 0
    changed = model.output.save()
with model.trace(inputs):
    model.second.output = model.second.output * 2
    doubled = model.output.save()
with model.trace(inputs):
    out = model.first.output
    out.requires_grad_()
    loss = model.output.sum()
    with loss.backward():
        gradient = out.grad.save()
numbers = {
    "hidden": [hidden.norm().item(), seen.norm().item()], "plain": plain.tolist(), "changed": changed.tolist(),
    "doubled": doubled.tolist(), "gradient": gradient.tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
