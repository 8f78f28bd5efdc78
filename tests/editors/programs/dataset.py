"""A data set of one's own, split, collated and loaded in batches."""

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, random_split
from torch.utils.data.sampler import WeightedRandomSampler

Pair = tuple[torch.Tensor, int]


class Squares(Dataset[Pair]):
    def __init__(self, count: int, transform: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self.x = torch.linspace(-1.0, 1.0, count)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Pair:
        x = self.x[index]
        if self.transform is not None:
            x = self.transform(x)
        return x, int(x > 0)


class Lines(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        yield from ("one", "two")


def collate(items: list[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    xs, ys = zip(*items)
    return torch.stack(xs), torch.tensor(ys)


def main() -> None:
    data = Squares(20, transform=torch.square)
    generator = torch.Generator().manual_seed(0)
    train, test = random_split(data, [16, 4], generator=generator)
    loader = DataLoader(train, batch_size=4, shuffle=True, num_workers=0, drop_last=True, collate_fn=collate)
    for x, y in loader:
        print(x.shape, y.dtype)
    plain = TensorDataset(torch.randn(6, 2), torch.arange(6))
    sampler = WeightedRandomSampler([0.5] * 6, num_samples=6, replacement=True)
    for x, y in DataLoader(plain, batch_size=3, sampler=sampler):
        print(x.mean(dim=0), y.tolist())
    few = Subset(data, [0, 1])
    first, label = few[0]
    print(len(test), len(few), first.item(), label + 1, len(loader), [line.upper() for line in Lines()])


if __name__ == "__main__":
    main()
