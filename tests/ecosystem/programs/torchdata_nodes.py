"""torchdata: nodes that load, batch and prefetch, whose state is saved in the middle, and the stateful data loader."""

import json
import os
import sys
import tempfile

import torch
from shared.training import three_steps
from torch import nn
from torch.utils.data import RandomSampler, SequentialSampler
from torchdata.nodes import (
    Batcher,
    IterableWrapper,
    Loader,
    Mapper,
    MapStyleWrapper,
    MultiNodeWeightedSampler,
    ParallelMapper,
    Prefetcher,
    SamplerWrapper,
    Unbatcher,
)
from torchdata.stateful_dataloader import StatefulDataLoader

torch.manual_seed(0)
x = torch.randn(24, 4)
data = [(row, row.sum()) for row in x]


def stacked(batch):
    return torch.stack([a for a, _ in batch]), torch.stack([b for _, b in batch])


def pipeline():
    node = MapStyleWrapper(data, SequentialSampler(data))
    node = ParallelMapper(Batcher(node, 4), stacked, num_workers=2, method="thread", in_order=True)
    return Loader(Prefetcher(node, prefetch_factor=2))


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, loader = [], pipeline()
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "nodes.pt")
for step, (a, b) in enumerate(loader):
    losses += three_steps(optimizer, lambda: nn.functional.mse_loss(model(a)[:, 0], b), steps=1)
    if step == 2:
        state = loader.state_dict()
if not os.path.exists(file):
    torch.save({"state": state, "model": model.state_dict()}, file)
loaded = torch.load(file, weights_only=False)
again = pipeline()
again.load_state_dict(loaded["state"])
model.load_state_dict(loaded["model"])
numbers = {"rest": [nn.functional.mse_loss(model(a)[:, 0], b).item() for a, b in again]}
mixed = MultiNodeWeightedSampler(
    {"small": IterableWrapper(range(5)), "large": IterableWrapper(range(100, 105))},
    {"small": 0.7, "large": 0.3},
    seed=3,
)
numbers["mixed"] = list(Loader(Unbatcher(Batcher(Mapper(mixed, lambda i: i + 1), 3, drop_last=False))))
numbers["sampled"] = list(SamplerWrapper(RandomSampler(range(6), generator=torch.Generator().manual_seed(1))))
for workers in (0, 2):
    torch.manual_seed(5)
    shuffled = StatefulDataLoader(list(range(12)), batch_size=3, shuffle=True, num_workers=workers)
    seen, kept = [], None
    for number, batch in enumerate(shuffled):
        seen += batch.tolist()
        if number == 1:
            kept = shuffled.state_dict()
    torch.manual_seed(6)
    resumed = StatefulDataLoader(list(range(12)), batch_size=3, shuffle=True, num_workers=workers)
    resumed.load_state_dict(kept)
    numbers[f"workers {workers}"] = [*seen, *(i for batch in resumed for i in batch.tolist())]
print(json.dumps({"losses": losses, "numbers": numbers}))
