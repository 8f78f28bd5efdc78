"""Gaussian process regression: the kernel's parameters are learned through a Cholesky factor of the covariance."""

import math

import torch
from torch import nn
from torch.distributions import Gamma, MultivariateNormal
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class GP(nn.Module):
    """Constant mean, squared exponential plus periodic kernel, Gaussian noise; what is positive, as a logarithm."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.mean = nn.Parameter(torch.zeros((), dtype=torch.double))
        self.log = nn.ParameterDict({
            name: nn.Parameter(torch.tensor(math.log(value), dtype=torch.double))
            for name, value in {"scale": 1.0, "length": 0.7, "period": 1.5, "wave": 0.5, "noise": 0.3}.items()
        })  # fmt: skip

    def kernel(self, a, b):
        distance = (a.unsqueeze(1) - b.unsqueeze(0)).abs()
        smooth = torch.exp(-0.5 * (distance / self.log["length"].exp()) ** 2)
        sine = torch.sin(math.pi * distance / self.log["period"].exp())
        return self.log["scale"].exp() * smooth + self.log["wave"].exp() * torch.exp(-2 * sine**2)

    def covariance(self):
        noise = self.log["noise"].exp() ** 2
        return self.kernel(self.x, self.x) + noise * torch.eye(len(self.x), dtype=torch.double)

    def negative_log_likelihood(self):
        L = torch.linalg.cholesky(self.covariance())
        centred = (self.y - self.mean).unsqueeze(1)
        alpha = torch.cholesky_solve(centred, L)
        log_det = 2 * torch.diagonal(L).log().sum()
        return 0.5 * ((centred * alpha).sum() + log_det + len(self.x) * math.log(2 * math.pi))

    def log_prior(self):
        two = torch.tensor(2.0, dtype=torch.double)
        return sum(Gamma(two, two).log_prob(p.exp()) for p in self.log.values())

    def predict(self, x):
        """The mean and covariance of the function at x, given the data."""
        cross = self.kernel(x, self.x)
        solved = torch.linalg.solve(self.covariance(), cross.mT)
        mean = self.mean + solved.mT @ (self.y - self.mean)
        return mean, self.kernel(x, x) - cross @ solved


def main(steps=20):
    torch.manual_seed(31)
    x = torch.sort(torch.rand(24, dtype=torch.double) * 4).values
    y = torch.sin(2 * x) + 0.3 * x + 0.1 * torch.randn(24, dtype=torch.double)
    gp = GP(x, y)
    optimizer = torch.optim.Rprop(gp.parameters(), lr=0.03)
    losses, best = [], (math.inf, None)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = gp.negative_log_likelihood() - gp.log_prior()
        loss.backward()
        if loss.item() < best[0]:
            best = loss.item(), parameters_to_vector(gp.parameters()).detach().clone()
        optimizer.step()
        losses.append(loss.item())
    vector_to_parameters(best[1], gp.parameters())
    with torch.no_grad():
        exact = MultivariateNormal(gp.mean.expand(len(x)), gp.covariance()).log_prob(y)
        assert torch.allclose(exact, -gp.negative_log_likelihood())
        mean, covariance = gp.predict(torch.linspace(0, 4, 9, dtype=torch.double))
        losses[-1] += mean.abs().sum().item() + torch.linalg.slogdet(covariance + 1e-3 * torch.eye(9)).logabsdet.item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
