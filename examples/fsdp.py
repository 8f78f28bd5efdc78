import tensorgrad as torch

__doc__ = """Trains a network whose parameters, gradients and optimizer state are divided among processes.

    python examples/fsdp.py
    python -m tensorgrad.distributed.run --nproc-per-node 4 examples/fsdp.py

The first command starts two processes itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import start_ranks

dist, nn = torch.distributed, torch.nn
fully_shard = torch.distributed.fsdp.fully_shard


def main(steps: int = 50) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # all ranks start with the same parameters
    model = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)  # its parameters are gathered only while it runs
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    torch.manual_seed(1)
    x = torch.randn(64, 20)
    y = x[:, :1] * x[:, 1:2]
    x, y = x.chunk(size)[rank], y.chunk(size)[rank]  # each rank has its part of the batch
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            total = loss.detach()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step + 1}: loss {total.item():.4f}")
    pieces = sum(p.to_local().numel() for p in model.parameters())
    held = [0] * dist.get_world_size()
    dist.all_gather_object(held, pieces)
    if rank == 0:  # one rank prints, as lines of several may mix
        for other, number in enumerate(held):
            print(f"rank {other} has {number} of {sum(p.numel() for p in model.parameters())} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    start_ranks(torch, 2, main)
