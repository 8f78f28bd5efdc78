"""DTensor and fully_shard beside PyTorch's own, in the same processes: placements, local shapes, values, losses."""

import os
import sys

import numpy as np
import torch as theirs
import torch.distributed as their_dist
import torch.distributed.fsdp
import torch.distributed.tensor

import tensorgrad as ours
import tensorgrad.distributed.fsdp
import tensorgrad.distributed.tensor
from tests.distributed.ending import end

OPS = {
    "add": lambda t, x, w: x + x, "mul": lambda t, x, w: x * 2, "relu": lambda t, x, w: t.relu(x),
    "exp": lambda t, x, w: x.exp(), "sum": lambda t, x, w: x.sum(), "sum 0": lambda t, x, w: x.sum(0),
    "sum 1": lambda t, x, w: x.sum(1, keepdim=True), "transpose": lambda t, x, w: x.transpose(0, 1),
    "t": lambda t, x, w: x.t(), "matmul": lambda t, x, w: x @ w, "mm": lambda t, x, w: t.mm(x, w),
    "softmax of rows": lambda t, x, w: t.softmax(x, 1) if not x.placements[0].is_shard(1) else x,
    "unsqueeze": lambda t, x, w: x.unsqueeze(0) if not x.placements[0].is_shard() else x,
    "flatten": lambda t, x, w: x.flatten() if not x.placements[0].is_shard(1) else x,
    "view": lambda t, x, w: x.view(4, 2, 3), "permute": lambda t, x, w: x.permute(1, 0),
    "chunk": lambda t, x, w: x.chunk(2, 1)[0] if not x.placements[0].is_shard(1) else x,
    "cat": lambda t, x, w: t.cat([x, x], 1) if not x.placements[0].is_shard(1) else x,
    "clone": lambda t, x, w: x.clone(), "detach": lambda t, x, w: x.detach(), "double": lambda t, x, w: x.double(),
    "zeros_like": lambda t, x, w: t.zeros_like(x), "linear": lambda t, x, w: t.nn.functional.linear(x, w.t()),
}  # fmt: skip


def check_ops(rank, size):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    w = np.random.default_rng(1).standard_normal((6, 8)).astype("float32")
    problems = []
    for name, op in OPS.items():
        for places in ("R R", "S0 R", "S1 S0", "R S1"):
            found = []
            for t in (theirs, ours):
                tensor = t.distributed.tensor
                mesh = t.distributed.device_mesh.init_device_mesh("cpu", (size,))
                kinds = [tensor.Replicate() if p == "R" else tensor.Shard(int(p[1])) for p in places.split()]
                a, b = (tensor.distribute_tensor(t.from_numpy(v.copy()), mesh, [k]) for v, k in zip((x, w), kinds))
                result = op(t, a, b)
                whole = result.full_tensor().numpy()
                found.append((str(result.placements[0]), tuple(result.to_local().shape), whole))
            (place, shape, whole), (our_place, our_shape, our_whole) = found
            if (place, shape) != (our_place, our_shape) or not np.allclose(whole, our_whole, atol=1e-5):
                problems.append(f"{name} of {places}: {place} {shape}, here {our_place} {our_shape}")
    assert not problems, "\n".join(problems)


def losses(t, weights, x, y, rank, size, low):
    nn, fsdp = t.nn, t.distributed.fsdp
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
    model.load_state_dict({name: t.from_numpy(value.copy()) for name, value in weights.items()})
    mesh = t.distributed.device_mesh.init_device_mesh("cpu", (size,))
    options = {"mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=t.bfloat16, reduce_dtype=t.float32)} if low else {}
    for layer in (model[0], model[3], model):
        fsdp.fully_shard(layer, mesh=mesh, **options)
    optimizer, found = t.optim.AdamW(model.parameters(), lr=0.02), []
    for _ in range(5):
        loss = ((model(t.from_numpy(x).chunk(size)[rank]).float() - t.from_numpy(y).chunk(size)[rank]) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def check_training(rank, size):
    make = np.random.default_rng(0)
    shapes = {"0.weight": (8, 5), "0.bias": (8,), "2.weight": (8,), "2.bias": (8,), "3.weight": (3, 8), "3.bias": (3,)}
    weights = {name: make.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    x, y = make.standard_normal((8, 5)).astype("float32"), make.standard_normal((8, 3)).astype("float32")
    for low in (False, True):
        expected, got = (losses(t, weights, x, y, rank, size, low) for t in (theirs, ours))
        tolerance = 2e-2 if low else 1e-5  # of bfloat16, whose eight bits both round at other places
        assert np.allclose(expected, got, rtol=tolerance, atol=tolerance), (low, expected, got)


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
theirs.set_num_threads(1)
their_dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
ours.distributed.init_process_group("gloo")
check_training(rank, size)
check_ops(rank, size)
ours.distributed.destroy_process_group()
end(their_dist)
