"""An epoch of `DataLoader` over MNIST's 10,000 test digits, from the directory in MNIST, or over random digits."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from benchmarks.rows import Row

COUNT = 10_000


def digits(count: int):
    """Returns (count, 1, 28, 28) bytes and their labels as arrays, from files in the directory MNIST or else random."""
    import numpy as np

    folder = Path(os.environ.get("MNIST", "mnist"))
    files = [folder / f"t10k-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1")]
    if all(file.exists() for file in files):
        images = np.frombuffer(gzip.decompress(files[0].read_bytes()), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        labels = np.frombuffer(gzip.decompress(files[1].read_bytes()), np.uint8, offset=8).astype(np.int64)
        return images[:count], labels[:count]
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (count, 1, 28, 28), np.uint8), generator.integers(0, 10, count)


class Digits:
    """A dataset that converts each digit when it is read, like a transform."""

    def __init__(self, torch, count: int):
        self.torch, (self.images, self.labels) = torch, digits(count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.torch.from_numpy(self.images[i].astype("float32") / 255), int(self.labels[i])


def ready(torch, count: int):
    """Returns a dataset of tensors."""
    images, labels = digits(count)
    return torch.utils.data.TensorDataset(torch.tensor(images).float() / 255, torch.tensor(labels))


def epoch(make_dataset, batch: int = 64):
    """Returns the build function of a row that reads every batch and counts the labels."""

    def build(torch, count: int):
        loader = torch.utils.data.DataLoader(make_dataset(torch, count), batch_size=batch, shuffle=True)

        def step():
            total = 0
            for _, labels in loader:
                total += len(labels)
            return total

        def results():
            torch.manual_seed(0)
            images, labels = zip(*loader, strict=True)
            return [torch.cat(labels), torch.stack([batch.mean() for batch in images]), images[-1]]

        return step, results

    return build


ROWS = [
    Row("DataLoader, TensorDataset, batch 64", epoch(ready), {"count": COUNT}, {"count": 200}),
    Row("DataLoader, a conversion per digit, batch 64", epoch(Digits), {"count": COUNT}, {"count": 200}),
]
