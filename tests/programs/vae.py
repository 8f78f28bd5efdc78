"""A variational autoencoder on images of random blobs: the reparameterisation trick and the closed-form KL."""

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, n_in=100, n_hidden=64, n_latent=4):
        super().__init__()
        self.fc1 = nn.Linear(n_in, n_hidden)
        self.fc_mu = nn.Linear(n_hidden, n_latent)
        self.fc_logvar = nn.Linear(n_hidden, n_latent)
        self.fc3 = nn.Linear(n_latent, n_hidden)
        self.fc4 = nn.Linear(n_hidden, n_in)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 100))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon, x, mu, logvar, beta=1.0):
    bce = F.binary_cross_entropy(recon, x.view(-1, 100), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + beta * kld


def blobs(n, size=10):
    """Images in [0, 1] with one soft round spot each."""
    centre = torch.rand(n, 2, 1, 1) * size
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).float()
    return torch.exp(-((grid - centre) ** 2).sum(1, keepdim=True) / 8)


def main(steps=20):
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(blobs(96)), batch_size=32, shuffle=True)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    epoch = 0
    while len(losses) < steps:
        model.train()
        for (data,) in loader:
            if len(losses) == steps:
                break
            optimizer.zero_grad()
            recon, mu, logvar = model(data)
            loss = loss_function(recon, data, mu, logvar, beta=min(1.0, (epoch + 1) / 5))
            loss.backward()
            optimizer.step()
            losses.append(loss.item() / len(data))
        epoch += 1
        with torch.no_grad():
            images = model.decode(torch.randn(8, 4)).view(8, 1, 10, 10)
        assert images.min() >= 0 and images.max() <= 1
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
