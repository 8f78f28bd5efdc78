"""A generative adversarial network that learns eight Gaussians on a circle."""

import math

import torch
import torch.nn as nn

latent_dim = 8
batch_size = 64


def real_samples(n):
    k = torch.randint(0, 8, (n,)).float() * (2 * math.pi / 8)
    centres = torch.stack((torch.cos(k), torch.sin(k)), 1) * 2
    return centres + torch.normal(mean=0.0, std=0.05, size=(n, 2))


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(latent_dim, 32, normalize=False), *block(32, 32), nn.Linear(32, 2))

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(2, 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 1),
        )

    def forward(self, x):
        return self.model(x)


def main(steps=20):
    torch.manual_seed(5)
    generator, discriminator = Generator(), Discriminator()
    adversarial_loss = nn.BCEWithLogitsLoss()
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_D = torch.optim.RMSprop(discriminator.parameters(), lr=5e-4)
    valid, fake = torch.ones(batch_size, 1), torch.zeros(batch_size, 1)

    losses = []
    for _ in range(steps):
        # the discriminator: real ones up, generated ones down
        optimizer_D.zero_grad()
        z = torch.randn(batch_size, latent_dim)
        generated = generator(z)
        real_loss = adversarial_loss(discriminator(real_samples(batch_size)), valid * 0.9)
        fake_loss = adversarial_loss(discriminator(generated.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        optimizer_D.step()

        # the generator: fool it (without leaving gradients in the discriminator)
        for p in discriminator.parameters():
            p.requires_grad_(False)
        optimizer_G.zero_grad()
        g_loss = adversarial_loss(discriminator(generated), valid)
        g_loss.backward()
        optimizer_G.step()
        for p in discriminator.parameters():
            p.requires_grad_(True)
        losses.append(d_loss.item() + g_loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
