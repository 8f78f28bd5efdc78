"""A multilayer perceptron that tells three arms of a spiral apart."""

import math

import torch
import torch.nn as nn
import torch.optim as optim


def spiral(per_class, classes=3):
    """Points of noisy spiral arms, with the number of their arm."""
    points, labels = [], []
    for c in range(classes):
        radius = torch.linspace(0.1, 1.0, per_class)
        angle = torch.linspace(0, 4, per_class) + 2 * math.pi * c / classes + 0.2 * torch.randn(per_class)
        points.append(torch.stack([radius * angle.sin(), radius * angle.cos()], dim=1))
        labels.append(torch.full((per_class,), c, dtype=torch.long))
    return torch.cat(points), torch.cat(labels)


class MLP(nn.Module):
    def __init__(self, sizes, dropout=0.1):
        super().__init__()
        layers = []
        for n_in, n_out in zip(sizes[:-2], sizes[1:-1]):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(inplace=True), nn.Dropout(dropout)]
        layers.append(nn.Linear(sizes[-2], sizes[-1]))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    correct = (model(x).argmax(dim=1) == y).float().mean().item()
    model.train()
    return correct


def main(steps=20):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = spiral(100)
    x, y = x.to(device), y.to(device)
    model = MLP([2, 64, 64, 3]).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)

    losses = []
    for _ in range(steps):
        idx = torch.randperm(len(x))[:64]
        loss = criterion(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    assert accuracy(model, x, y) > 1 / 3
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
