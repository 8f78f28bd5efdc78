"""A Wasserstein GAN with gradient penalty: the critic's gradient in its input is itself differentiated."""

import torch
import torch.nn as nn
from torch.autograd import Variable, grad

latent_dim, img_size, lambda_gp, n_critic = 10, 8, 10, 2


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(latent_dim, 16 * (img_size // 4) ** 2)
        self.conv_blocks = nn.Sequential(
            nn.BatchNorm2d(16),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(16, 8, 3, stride=1, padding=1),
            nn.BatchNorm2d(8, 0.8),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(8, 1, 3, stride=1, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        out = self.l1(z)
        out = out.view(out.shape[0], 16, img_size // 4, img_size // 4)
        return self.conv_blocks(out)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 3, 2, 1), nn.Softplus(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.out = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 1))

    def forward(self, img):
        return self.out(self.features(img).flatten(1))


def compute_gradient_penalty(critic, real, fake):
    """How far the norm of the gradient is from 1 between real and generated images (Gulrajani et al., 2017)."""
    alpha = torch.rand(real.size(0), 1, 1, 1)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d_interpolates = critic(interpolates)
    (gradients,) = grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=torch.ones_like(d_interpolates),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def discs(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, img_size), torch.linspace(-1, 1, img_size), indexing="ij")
    radius = torch.rand(n, 1, 1) * 0.6 + 0.3
    return torch.tanh(8 * (radius - torch.hypot(xx, yy))).unsqueeze(1)


def main(steps=20):
    torch.manual_seed(21)
    generator, critic = Generator(), Critic()
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizer_D = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    losses = []
    for i in range(steps):
        optimizer_D.zero_grad()
        real = Variable(discs(12))
        z = Variable(torch.FloatTensor(12, latent_dim).normal_(0, 1))
        fake = generator(z)
        penalty = compute_gradient_penalty(critic, real.data, fake.data)
        d_loss = -torch.mean(critic(real)) + torch.mean(critic(fake.detach())) + lambda_gp * penalty
        d_loss.backward()
        optimizer_D.step()
        losses.append(d_loss.item())
        if i % n_critic == 0:
            optimizer_G.zero_grad()
            g_loss = -torch.mean(critic(generator(z)))
            g_loss.backward()
            optimizer_G.step()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
