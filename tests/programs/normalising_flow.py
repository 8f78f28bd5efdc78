"""A normalising flow of affine coupling layers that learns the density of two moons."""

import math

import torch
import torch.distributions as D
from torch import nn


def two_moons(n, noise=0.05):
    angle = math.pi * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, torch.cos(angle), 1 - torch.cos(angle))
    y = torch.where(upper, torch.sin(angle), 0.5 - torch.sin(angle))
    return torch.stack([x, y], dim=1) + D.Normal(0.0, noise).sample((n, 2))


class Coupling(nn.Module):
    """Real NVP's layer (Dinh et al., 2017): what the mask keeps decides how the rest is scaled and shifted."""

    def __init__(self, dim, hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.log_factor = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        kept = x * self.mask
        log_s = self.scale(kept) * self.log_factor.exp() * (1 - self.mask)
        y = kept + (1 - self.mask) * (x * log_s.exp() + self.shift(kept))
        return y, log_s.sum(-1)

    def inverse(self, y):
        kept = y * self.mask
        log_s = self.scale(kept) * self.log_factor.exp() * (1 - self.mask)
        return kept + (1 - self.mask) * (y - self.shift(kept)) * torch.exp(-log_s)


class Flow(nn.Module):
    def __init__(self, dim=2, hidden=24, n_layers=4):
        super().__init__()
        masks = [torch.tensor([float((i + j) % 2) for j in range(dim)]) for i in range(n_layers)]
        self.layers = nn.ModuleList(Coupling(dim, hidden, mask) for mask in masks)
        self.register_buffer("loc", torch.zeros(dim))
        self.register_buffer("cov", torch.eye(dim))

    @property
    def base(self):
        return D.MultivariateNormal(self.loc, covariance_matrix=self.cov)

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return self.base.log_prob(x) + total

    @torch.no_grad()
    def sample(self, n):
        z = self.base.sample((n,))
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def main(steps=20):
    torch.manual_seed(11)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    losses = []
    for _ in range(steps):
        loss = -flow.log_prob(two_moons(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    x = flow.sample(64)
    back = x
    for layer in flow.layers:
        back, _ = layer(back)
    losses[-1] += flow.base.log_prob(back).mean().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
