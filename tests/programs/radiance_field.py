"""A neural radiance field in the plane: rays through a coloured density, sampled coarsely and then where it matters."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def positional_encoding(x, n_freqs=2):
    encoded = [x]
    for i in range(n_freqs):
        encoded += [torch.sin(2.0**i * x), torch.cos(2.0**i * x)]
    return torch.cat(encoded, dim=-1)


class Field(nn.Module):
    """Density and colour at points of the plane, with a skip connection to the encoded point."""

    def __init__(self, hidden=24, n_freqs=2):
        super().__init__()
        n_in = 2 * (1 + 2 * n_freqs)
        self.first = nn.Linear(n_in, hidden)
        self.second = nn.Linear(hidden + n_in, hidden)
        self.density, self.colour = nn.Linear(hidden, 1), nn.Linear(hidden, 3)

    def forward(self, points):
        encoded = positional_encoding(points)
        h = F.relu(self.first(encoded))
        h = F.relu(self.second(torch.cat([h, encoded], dim=-1)))
        return self.density(h).squeeze(-1), torch.sigmoid(self.colour(h))


def true_field(points):
    """A red disc and a blue one."""
    red = torch.sigmoid(20 * (0.5 - torch.linalg.norm(points - torch.tensor([0.4, 0.0]), dim=-1)))
    blue = torch.sigmoid(20 * (0.3 - torch.linalg.vector_norm(points + torch.tensor([0.5, 0.2]), dim=-1)))
    return 6 * (red + blue) - 3, torch.stack([red, torch.zeros_like(red), blue], dim=-1)


def render(field, origins, directions, depths):
    """Colours seen along the rays, and the weight of each depth."""
    points = origins[..., None, :] + directions[..., None, :] * depths[..., :, None]
    density, colour = field(points)
    gaps = depths[..., 1:] - depths[..., :-1]
    gaps = torch.cat([gaps, torch.full_like(gaps[..., :1], 1e2)], dim=-1)
    alpha = 1.0 - torch.exp(-F.softplus(density) * gaps)
    passed = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)[..., :-1]
    weights = alpha * passed
    return (weights[..., None] * colour).sum(dim=-2), weights


def sample_pdf(bins, weights, n):
    """Depths drawn where the weights are large, by inverting their distribution function."""
    pdf = (weights + 1e-2) / (weights + 1e-2).sum(dim=-1, keepdim=True)
    cdf = F.pad(torch.cumsum(pdf, dim=-1), (1, 0))
    u = torch.rand(*cdf.shape[:-1], n)
    above = torch.searchsorted(cdf, u, right=True).clamp(max=cdf.shape[-1] - 1)
    below = (above - 1).clamp(min=0)
    cdf_low, cdf_high = torch.gather(cdf, -1, below), torch.gather(cdf, -1, above)
    low, high = torch.gather(bins, -1, below), torch.gather(bins, -1, above.clamp(max=bins.shape[-1] - 1))
    span = torch.where(cdf_high - cdf_low < 1e-5, torch.ones_like(u), cdf_high - cdf_low)
    return low + (u - cdf_low) / span * (high - low)


def main(steps=20, n_rays=32):
    torch.manual_seed(37)
    coarse, fine = Field(), Field()
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=3e-3)
    losses = []
    for _ in range(steps):
        angle = 2 * math.pi * torch.rand(n_rays)
        origins = 2 * torch.stack([angle.cos(), angle.sin()], dim=-1)
        directions = F.normalize(0.6 * torch.randn(n_rays, 2).clamp(-1, 1) - origins, dim=-1)
        depths = torch.linspace(0.8, 3.2, 16) + 0.15 * torch.rand(n_rays, 16)
        target, _ = render(true_field, origins, directions, torch.linspace(0.8, 3.2, 48).expand(n_rays, -1))
        seen, weights = render(coarse, origins, directions, depths)
        extra = sample_pdf(0.5 * (depths[:, 1:] + depths[:, :-1]), weights[:, 1:-1].detach(), 12)
        all_depths, _ = torch.sort(torch.cat([depths, extra], dim=-1), dim=-1)
        seen_fine, _ = render(fine, origins, directions, all_depths)
        loss = F.mse_loss(seen, target) + F.mse_loss(seen_fine, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
