"""Distributions: a variational autoencoder and a policy."""

import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, MultivariateNormal, Normal, kl_divergence
from torch.distributions.distribution import Distribution


class VAE(nn.Module):
    def __init__(self, size: int, latent: int) -> None:
        super().__init__()
        self.encode = nn.Linear(size, 2 * latent)
        self.decode = nn.Linear(latent, size)

    def forward(self, x: torch.Tensor) -> tuple[Normal, Bernoulli]:
        mean, log_scale = self.encode(x).chunk(2, dim=-1)
        posterior = Normal(mean, log_scale.exp())
        return posterior, Bernoulli(logits=self.decode(posterior.rsample()))


def elbo(model: VAE, x: torch.Tensor) -> torch.Tensor:
    posterior, likelihood = model(x)
    prior = Normal(torch.zeros_like(posterior.loc), torch.ones_like(posterior.scale))
    kl = kl_divergence(posterior, prior).sum(-1)
    bound: torch.Tensor = (likelihood.log_prob(x).sum(-1) - kl).mean()
    return bound


def act(logits: torch.Tensor) -> tuple[int, torch.Tensor]:
    policy = Categorical(logits=logits)
    action = policy.sample()
    return int(action.item()), policy.log_prob(action) + 0.01 * policy.entropy()


def describe(distribution: Distribution) -> str:
    return f"{distribution.batch_shape} {distribution.event_shape} {distribution.mean} {distribution.variance}"


def main() -> None:
    torch.manual_seed(0)
    model = VAE(6, 2)
    loss = -elbo(model, torch.rand(4, 6).round())
    loss.backward()
    print(loss.item(), act(torch.zeros(3)))
    print(describe(Independent(Normal(torch.zeros(3), 1.0), 1)))
    full = MultivariateNormal(torch.zeros(2), covariance_matrix=torch.eye(2))
    print(full.sample((5,)).shape, full.log_prob(torch.zeros(2)), torch.Size([2]).numel())


if __name__ == "__main__":
    main()
