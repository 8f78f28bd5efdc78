"""Model-agnostic meta-learning of sine waves: the outer gradient goes through the inner gradient steps."""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class SineTask:
    """A wave of random amplitude and phase."""

    def __init__(self):
        self.amplitude = torch.empty(1).uniform_(0.5, 3.0).item()
        self.phase = torch.empty(1).uniform_(0.0, math.pi).item()

    def sample(self, k):
        x = torch.rand(k, 1) * 10 - 5
        return x, self.amplitude * torch.sin(x + self.phase)


class MetaLearner(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.model = nn.Sequential(OrderedDict([
            ("l1", nn.Linear(1, hidden)), ("relu1", nn.ReLU()),
            ("l2", nn.Linear(hidden, hidden)), ("relu2", nn.ReLU()),
            ("l3", nn.Linear(hidden, 1)),
        ]))  # fmt: skip

    def functional_forward(self, x, weights):
        x = F.relu(F.linear(x, weights["l1.weight"], weights["l1.bias"]))
        x = F.relu(F.linear(x, weights["l2.weight"], weights["l2.bias"]))
        return F.linear(x, weights["l3.weight"], weights["l3.bias"])

    def adapt(self, x, y, inner_lr=0.01, inner_steps=2, create_graph=True):
        """Weights after a few steps of gradient descent on the task, as functions of the present ones."""
        weights = OrderedDict(self.model.named_parameters())
        for _ in range(inner_steps):
            loss = F.mse_loss(self.functional_forward(x, weights), y)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=create_graph)
            weights = OrderedDict((name, w - inner_lr * g) for (name, w), g in zip(weights.items(), grads))
        return weights


def hessian_vector_product(loss, params, vector):
    """Of the loss's Hessian with a flat vector, by differentiating a gradient."""
    grads = torch.autograd.grad(loss, params, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in grads])
    hvp = torch.autograd.grad(flat @ vector, params, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(hvp, params)])


def main(steps=20):
    torch.manual_seed(8)
    learner = MetaLearner()
    params = list(learner.parameters())
    optimizer = torch.optim.Adam(params, lr=1e-3)
    losses = []
    for _ in range(steps):
        meta_loss = 0.0
        for _ in range(4):
            task = SineTask()
            x_support, y_support = task.sample(10)
            x_query, y_query = task.sample(10)
            weights = learner.adapt(x_support, y_support)
            meta_loss = meta_loss + F.mse_loss(learner.functional_forward(x_query, weights), y_query)
        meta_loss = meta_loss / 4
        optimizer.zero_grad()
        meta_loss.backward()
        optimizer.step()
        losses.append(meta_loss.item())
    x, y = SineTask().sample(10)
    vector = torch.ones(sum(p.numel() for p in params))
    curvature = hessian_vector_product(F.mse_loss(learner.model(x), y), params, vector)
    losses[-1] += curvature.norm().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
