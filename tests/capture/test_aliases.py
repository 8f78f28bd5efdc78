"""Compiled forward passes whose arguments and incoming gradients share memory: with parameters, with their gradients,
with what was kept, and with each other. The plan of the backward pass is made in such a pass, and runs in others."""

import random

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.region import Region
from tests.capture.compare import bits


class TwoWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))


class Products(TwoWeights):
    def forward(self, x, y):
        return torch.tanh(x * self.w) * y + self.v


class Layers(TwoWeights):
    def forward(self, x, y):
        return (torch.relu(x @ self.w.t()) @ self.v.t()) * y


class Several(TwoWeights):
    def forward(self, x, y):
        h = torch.sigmoid(x @ self.w)
        return h, (h * y).exp() * self.v, x * y


class Passing(TwoWeights):
    """Gradients arrive as they are, or as views."""

    def forward(self, x, y):
        return (x + y + self.w).sum(0), (x.t() - y) * self.v


class World:
    def __init__(self, model):
        torch.manual_seed(0)
        self.model, self.kept = model(), torch.randn(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def argument(self, r, other):
        """A tensor, half of the time one that shares memory with something."""
        w, v = self.model.w, self.model.v
        shared = [
            other, other.detach().t(), w.detach(), w.detach().t(), v.data, self.kept, made(r, 4, 4)[:1].expand(4, 4),
            made(r, 4, 4).requires_grad_(),
        ]  # fmt: skip
        if w.grad is not None:
            shared.append(w.grad)
        return made(r, 4, 4) if r.random() < 0.5 else r.choice(shared)

    def gradients(self, r, outputs, given):
        found = []
        for out in outputs:
            shared = [self.model.w.detach(), self.model.v.detach(), *given, self.kept, out.detach(), *found]
            shared = [t.detach() for t in shared if t is not None and t.shape == out.shape]
            kind = r.random()
            if kind < 0.1 and len(outputs) > 1:
                found.append(None)
            elif kind < 0.2:
                found.append(torch.ones(()).expand(out.shape))
            else:
                found.append(r.choice(shared) if kind < 0.65 and shared else made(r, *out.shape))
        if all(g is None for g in found):
            found[0] = torch.ones(outputs[0].shape)
        return found

    def step(self, r, forward):
        """One pass forward and one or two back; returns what can be seen after it, and the message of an error."""
        model, error = self.model, ""
        x = self.argument(r, self.kept)
        y = self.argument(r, x)
        if r.random() < 0.5:
            self.optimizer.zero_grad(set_to_none=r.random() < 0.5)
        made = forward(x, y)
        outputs = [t for t in (made if isinstance(made, tuple) else (made,)) if t.requires_grad]
        gradients = self.gradients(r, outputs, (x, y))
        passed = [(t, g) for t, g in zip(outputs, gradients, strict=True) if g is not None]
        roots, gradients = map(list, zip(*passed, strict=True))
        twice = r.random() < 0.3
        try:
            if r.random() < 0.3:
                torch.autograd.grad(roots, list(model.parameters()), gradients, allow_unused=True, retain_graph=True)
            torch.autograd.backward(roots, gradients, retain_graph=twice)
            if twice:
                if r.random() < 0.3:
                    x.detach().mul_(0.5)
                torch.autograd.backward(roots, gradients)
        except RuntimeError as raised:
            error = str(raised)
        if r.random() < 0.3:
            self.optimizer.step()
        if r.random() < 0.1 and model.w.grad is not None:
            model.v.grad = model.w.grad
        if r.random() < 0.1:
            model.w.grad = self.kept
        if r.random() < 0.1:
            model.w.data = self.kept if r.random() < 0.5 else self.kept.clone()
        parameters = list(model.parameters())
        return bits([made, parameters, [p.grad for p in parameters], x.grad, y.grad, self.kept]), error


def made(r, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(r.randrange(1000)))


@pytest.mark.parametrize("model", [Products, Layers, Several, Passing])
def test_plans_of_backward_passes_that_are_made_while_arrays_share_memory(model):
    for seed in range(40):
        r = random.Random(seed)
        plain, other = World(model), World(model)
        region = Region(other.model, limit=10**6)
        for turn in range(5):
            region(made(random.Random(turn), 4, 4), made(random.Random(-turn), 4, 4))
        assert region.plans == 1, region.explain()
        for turn in range(10):
            choice = r.randrange(2**30)
            expected = plain.step(random.Random(choice), plain.model)
            assert other.step(random.Random(choice), region) == expected, (seed, turn)
