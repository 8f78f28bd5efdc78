"""A spatial transformer network straightens rotated bars before it classifies them."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=3)
        self.conv2 = nn.Conv2d(6, 10, kernel_size=3)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(10 * 2 * 2, 20)
        self.fc2 = nn.Linear(20, 3)
        self.localization = nn.Sequential(
            nn.Conv2d(1, 4, kernel_size=5), nn.MaxPool2d(2, stride=2), nn.ReLU(True),
            nn.Conv2d(4, 6, kernel_size=3), nn.ReLU(True),
        )  # fmt: skip
        self.fc_loc = nn.Sequential(nn.Linear(6 * 4 * 4, 16), nn.ReLU(True), nn.Linear(16, 3 * 2))
        self.fc_loc[2].weight.data.zero_()
        # Not quite the identity: exactly at a pixel the derivative jumps, and the last bit of `linspace`, which
        # depends on the processor, would decide.
        self.fc_loc[2].bias.data.copy_(torch.tensor([0.93, 0, 0, 0, 0.93, 0], dtype=torch.float))

    def stn(self, x):
        theta = self.fc_loc(self.localization(x).view(-1, 6 * 4 * 4)).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 40)
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def rotated_bars(n, size=16):
    """One, two or three bars in an image, turned by up to 60 degrees."""
    labels = torch.randint(0, 3, (n,))
    ramp = torch.linspace(-1, 1, size)
    upright = torch.stack([(torch.cos(math.pi * (k + 1) * ramp) > 0).float().expand(size, size) for k in range(3)])
    angles = (torch.rand(n) - 0.5) * 2 * math.pi / 3
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = angles.cos()
    theta[:, 0, 1], theta[:, 1, 0] = -angles.sin(), angles.sin()
    images = upright[labels].unsqueeze(1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=True)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=True), labels


def main(steps=20):
    torch.manual_seed(13)
    data, target = rotated_bars(96)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
    scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 16], gamma=0.3)
    losses = []
    model.train()
    for step in range(steps):
        rows = slice(step % 4 * 24, step % 4 * 24 + 24)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data[rows]), target[rows])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses[-1] += F.nll_loss(model(data), target).item() + model.stn(data[:8]).mean().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
