"""Denoising diffusion on tiny images: a noise schedule, a small UNet that knows the time, averaging, sampling."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

T = 50


class Schedule:
    """Variances of the forward process (Ho et al., 2020), precomputed for every step."""

    def __init__(self):
        self.betas = torch.linspace(1e-4, 0.1, T)
        self.alphas = 1.0 - self.betas
        self.alphas_bar = torch.cumprod(self.alphas, dim=0)

    def add_noise(self, x, t, noise):
        a = self.alphas_bar[t][:, None, None, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, shape):
        x = torch.randn(shape)
        for t in reversed(range(T)):
            eps = model(x, torch.full((shape[0],), t, dtype=torch.long))
            x = (x - self.betas[t] / (1 - self.alphas_bar[t]).sqrt() * eps) / self.alphas[t].sqrt()
            if t > 0:
                x += self.betas[t].sqrt() * torch.randn_like(x)
        return x


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, dtype=torch.float32) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, t_dim):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time = nn.Linear(t_dim, c_out)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(emb))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, ch=8, t_dim=16):
        super().__init__()
        self.t_dim = t_dim
        self.mlp = nn.Sequential(nn.Linear(t_dim, t_dim), nn.SiLU(), nn.Linear(t_dim, t_dim))
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.down = ResBlock(ch, ch, t_dim)
        self.pool = nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * ch, 2 * ch, t_dim)
        self.up = ResBlock(3 * ch, ch, t_dim)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        emb = self.mlp(timestep_embedding(t, self.t_dim))
        skip = self.down(self.stem(x), emb)
        h = self.mid(self.pool(skip), emb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([h, skip], dim=1), emb))


@torch.no_grad()
def update_average(average, model, decay=0.9):
    for a, p in zip(average.parameters(), model.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)


def main(steps=20):
    torch.manual_seed(0)
    schedule, model = Schedule(), UNet()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ramp = torch.linspace(-1, 1, 8)
    images = torch.sin(3 * ramp.view(1, 1, 8) * torch.rand(64, 1, 1) + 4 * ramp.view(1, 8, 1)).unsqueeze(1)
    losses = []
    for _ in range(steps):
        x = images[torch.randint(0, len(images), (16,))]
        t = torch.randint(0, T, (x.shape[0],)).long()
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(schedule.add_noise(x, t, noise), t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average(average, model)
        losses.append(loss.item())
    losses[-1] += schedule.sample(average, (2, 1, 8, 8)).abs().mean().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
