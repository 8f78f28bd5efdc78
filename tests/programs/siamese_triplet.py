"""Metric learning: one embedding network, trained with triplets, pairs, and the hardest triplets of a batch."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset


class Clusters(Dataset):
    """Noisy points around random centres; asked for one, gives it with another of its kind and one of another kind."""

    def __init__(self, n_classes=6, per_class=12, dim=16):
        self.targets = torch.arange(n_classes).repeat_interleave(per_class)
        self.points = torch.randn(n_classes, dim)[self.targets] + 0.6 * torch.randn(n_classes * per_class, dim)
        self.by_class = {c: (self.targets == c).nonzero(as_tuple=True)[0].tolist() for c in range(n_classes)}

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        label = self.targets[index].item()
        positive = random.choice([i for i in self.by_class[label] if i != index])
        negative = random.choice(self.by_class[random.choice([c for c in self.by_class if c != label])])
        return self.points[index], self.points[positive], self.points[negative], label


class BalancedBatchSampler(BatchSampler):
    """Batches of `n_samples` from each of `n_classes`."""

    def __init__(self, dataset, n_classes, n_samples, n_batches):
        self.dataset, self.n_classes, self.n_samples, self.n_batches = dataset, n_classes, n_samples, n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            classes = random.sample(list(self.dataset.by_class), self.n_classes)
            yield [i for c in classes for i in random.sample(self.dataset.by_class[c], self.n_samples)]

    def __len__(self):
        return self.n_batches


class EmbeddingNet(nn.Module):
    def __init__(self, dim=16, out=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(dim, 32), nn.PReLU(), nn.Linear(32, 32), nn.PReLU(), nn.Linear(32, out))

    def forward(self, x):
        return F.normalize(self.fc(x), p=2, dim=1)


class ContrastiveLoss(nn.Module):
    """Pulls pairs of one kind together and pushes others apart up to a margin (Hadsell et al., 2006)."""

    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        distance = F.pairwise_distance(a, b, keepdim=True)
        apart = torch.clamp(self.margin - distance, min=0.0)
        return torch.mean(same * distance.pow(2) + (1 - same) * apart.pow(2))


def hardest_triplets(embeddings, labels, margin=0.3):
    """For each anchor the farthest of its kind and the nearest of the others (Hermans et al., 2017)."""
    distances = torch.cdist(embeddings, embeddings)
    same = labels.unsqueeze(0).eq(labels.unsqueeze(1))
    not_itself = ~torch.eye(len(labels), dtype=torch.bool)
    positive = distances.masked_fill(~(same & not_itself), -1.0).max(dim=1).values
    negative = distances.masked_fill(same, float("inf")).min(dim=1).values
    return F.relu(positive - negative + margin).mean()


def main(steps=20):
    random.seed(0)
    torch.manual_seed(0)
    dataset, net = Clusters(), EmbeddingNet()
    sampler = BalancedBatchSampler(dataset, n_classes=4, n_samples=4, n_batches=5)
    loader = DataLoader(dataset, batch_sampler=sampler)
    triplet, contrastive = nn.TripletMarginLoss(margin=0.5), ContrastiveLoss()
    optimizer = torch.optim.SGD([
        {"params": [p for n, p in net.named_parameters() if "weight" in n]},
        {"params": [p for n, p in net.named_parameters() if "bias" in n], "lr": 0.2},
    ], lr=0.1, momentum=0.5)  # fmt: skip
    losses = []
    while len(losses) < steps:
        for anchor, positive, negative, labels in loader:
            if len(losses) == steps:
                break
            a, p, n = net(anchor), net(positive), net(negative)
            same = torch.cat([torch.ones(len(a), 1), torch.zeros(len(a), 1)])
            loss = triplet(a, p, n) + contrastive(torch.cat([a, a]), torch.cat([p, n]), same)
            loss = loss + hardest_triplets(a, labels) + F.cosine_embedding_loss(a, n, -torch.ones(len(a)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
