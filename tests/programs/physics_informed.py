"""A physics-informed network solves Burgers' equation u_t + u u_x = nu u_xx: derivatives in the inputs, in float64."""

import math

import torch
from torch import nn

nu = 0.05 / math.pi


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class PINN(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        layers = [nn.Linear(2, width), Sine()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))
        for p in self.net.parameters():
            if p.ndim == 2:
                nn.init.xavier_normal_(p, gain=nn.init.calculate_gain("tanh"))

    def forward(self, t, x):
        return self.net(torch.cat([t, x], dim=1))


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, t, x):
    t, x = t.requires_grad_(), x.requires_grad_()
    u = model(t, x)
    u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
    return u_t + u * u_x - nu * derivative(u_x, x)


def main(steps=20):
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(23)
        model = PINN()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.98)
        x0 = torch.linspace(-1, 1, 32).unsqueeze(1)
        u0 = -torch.sin(math.pi * x0)
        edge = torch.cat([torch.full((16, 1), -1.0), torch.full((16, 1), 1.0)])
        losses = []
        for _ in range(steps):
            t, x = torch.rand(64, 1), torch.rand(64, 1) * 2 - 1
            inside = residual(model, t, x).pow(2).mean()
            start = (model(torch.zeros_like(x0), x0) - u0).pow(2).mean()
            border = model(torch.rand(32, 1), edge).pow(2).mean()
            loss = inside + 10 * start + border
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            assert loss.dtype == torch.float64
            losses.append(loss.item())
        # the solution's Hessian in (t, x) at one point, by differentiating twice
        point = torch.tensor([[0.1, 0.2]])
        hessian = torch.autograd.functional.hessian(lambda p: model(p[:, :1], p[:, 1:]).sum(), point)
        losses[-1] += hessian.abs().sum().item()
        return losses
    finally:
        torch.set_default_dtype(torch.float32)


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
