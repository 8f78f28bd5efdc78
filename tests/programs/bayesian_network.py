"""Bayes by backprop: weights are Gaussians, sampled anew in every forward pass and held near a prior."""

import torch
import torch.distributions as dist
import torch.nn as nn
import torch.nn.functional as F


class BayesianLinear(nn.Module):
    def __init__(self, in_features, out_features, prior_std=1.0):
        super().__init__()
        self.mu = nn.Parameter(torch.empty(out_features, in_features + 1).uniform_(-0.3, 0.3))
        self.rho = nn.Parameter(torch.empty(out_features, in_features + 1).fill_(-3.0))
        self.register_buffer("prior_mu", torch.zeros(1))
        self.register_buffer("prior_std", torch.tensor([prior_std]))

    @property
    def posterior(self):
        return dist.Normal(self.mu, F.softplus(self.rho))

    def forward(self, x):
        weight = self.posterior.rsample() if self.training else self.mu
        return F.linear(x, weight[:, :-1], weight[:, -1])

    def kl(self):
        prior = dist.Normal(self.prior_mu.expand_as(self.mu), self.prior_std.expand_as(self.mu))
        return dist.kl_divergence(self.posterior, prior).sum()

    def extra_repr(self):
        return f"in_features={self.mu.shape[1] - 1}, out_features={self.mu.shape[0]}"


class BayesianNet(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.l1, self.l2 = BayesianLinear(1, hidden), BayesianLinear(hidden, 2)

    def forward(self, x):
        mean, raw_scale = self.l2(torch.tanh(self.l1(x))).chunk(2, dim=-1)
        return mean, F.softplus(raw_scale) + 1e-3

    def kl(self):
        return sum(m.kl() for m in self.modules() if isinstance(m, BayesianLinear))

    def loss(self, x, y, samples, n_batches):
        """The negative evidence bound of a mini-batch, by a few samples."""
        log_likelihood = 0.0
        for _ in range(samples):
            mean, scale = self(x)
            log_likelihood = log_likelihood + dist.StudentT(5.0, mean, scale).log_prob(y).sum()
        return self.kl() / n_batches - log_likelihood / samples


def main(steps=20):
    torch.manual_seed(19)
    x = torch.linspace(-2, 2, 80).unsqueeze(1)
    y = x.sin() + 0.1 * (1 + x.abs()) * torch.randn_like(x)
    net = BayesianNet()
    assert "in_features=16" in repr(net)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        rows = torch.arange(step % 4, 80, 4)
        loss = net.loss(x[rows], y[rows], samples=3, n_batches=4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        draws = torch.stack([net(x)[0] for _ in range(16)])
        spread, quantiles = draws.std(dim=0), torch.quantile(draws, torch.tensor([0.1, 0.9]), dim=0)
    assert bool((quantiles[1] >= quantiles[0]).all())
    losses[-1] += spread.mean().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
