"""A small convolutional network, trained from a DataLoader on random images of four kinds of stripes."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, random_split


class Stripes(Dataset):
    """Noisy images with horizontal, vertical, diagonal or checkered stripes."""

    def __init__(self, n, size=16, transform=None):
        self.labels = torch.randint(0, 4, (n,))
        rows = torch.arange(size).view(-1, 1).expand(size, size)
        cols = rows.t()
        kinds = torch.stack([rows % 4 < 2, cols % 4 < 2, (rows + cols) % 4 < 2, (rows // 2 + cols // 2) % 2 == 0])
        self.images = kinds[self.labels].float().unsqueeze(1) + 0.5 * torch.randn(n, 1, size, size)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.labels[index]


class Net(nn.Module):
    def __init__(self, classes=4):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.drop = nn.Dropout2d(0.25)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.avg_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = self.pool(self.drop(x))
        x = x.view(x.size(0), -1)
        x = F.dropout(F.relu(self.fc1(x)), p=0.5, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, loader, optimizer, limit):
    model.train()
    losses = []
    for batch_idx, (data, target) in enumerate(loader):
        if batch_idx == limit:
            break
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test(model, loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.max(1, keepdim=True)[1].eq(target.view_as(output.max(1)[1]).unsqueeze(1)).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)


def main(steps=20):
    torch.manual_seed(1)
    dataset = Stripes(200, transform=lambda image: (image - 0.5) / 0.5)
    train_set, test_set = random_split(dataset, [160, 40])
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=16)
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    losses = []
    while len(losses) < steps:
        losses += train(model, train_loader, optimizer, steps - len(losses))
        losses[-1] += test(model, test_loader)[0]  # the epoch's last number covers evaluation mode too
        scheduler.step()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
