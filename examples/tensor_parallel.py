import tensorgrad as torch

__doc__ = """Trains a network each of whose layers is divided among processes (tensor parallelism).

    python examples/tensor_parallel.py
    python -m tensorgrad.distributed.run --nproc-per-node 4 examples/tensor_parallel.py

The first command starts two processes itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import start_ranks

dist, nn = torch.distributed, torch.nn
parallel = torch.distributed.tensor.parallel


def main(steps: int = 50) -> None:
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 1))
    # each rank computes some of the hidden units, and what they contribute to the output
    parallel.parallelize_module(model, mesh, {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    x = torch.randn(64, 20)  # every rank has the whole batch
    y = x[:, :1] * x[:, 1:2]
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9 and dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    held = [0] * dist.get_world_size()
    dist.all_gather_object(held, model[0].weight.to_local().shape[0])
    if dist.get_rank() == 0:  # one rank prints, as lines of several may mix
        for other, number in enumerate(held):
            print(f"rank {other} has {number} of 100 hidden units")
    dist.destroy_process_group()


if __name__ == "__main__":
    start_ranks(torch, 2, main)
