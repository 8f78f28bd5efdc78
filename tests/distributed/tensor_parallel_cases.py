"""Tensor parallelism: an attention block gives the losses and gradient norms of the undivided one."""

import copy

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.nn.functional as F
from tensorgrad import nn
from tensorgrad.distributed.tensor import Replicate, Shard
from tensorgrad.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 24)
        self.q, self.k, self.v, self.o = (nn.Linear(24, 24) for _ in range(4))
        self.norm = nn.LayerNorm(24)
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, words):
        x = self.embed(words)
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, -1, 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.o(mixed)
        return x + self.down(torch.relu(self.up(self.norm(x))))


def losses(model, words):
    optimizer, found = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(4):
        loss = (model(words) ** 2).mean()
        loss.backward()
        found += [loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), 0.5)]
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(found)


torch.manual_seed(0)
words = torch.randint(0, 9, (3, 12))
block = Block()
plain = copy.deepcopy(block)
plan = {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    **{name: ColwiseParallel() for name in ("q", "k", "v", "up")},
    **{name: RowwiseParallel() for name in ("o", "down")},
}
parallelize_module(block, mesh, plan)
assert torch.allclose(losses(block, words), losses(plain, words), rtol=0, atol=1e-12)

# positions divided around the layers whose weights are divided
torch.manual_seed(1)
layers = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 25), nn.Tanh(), nn.Linear(25, 12), nn.LayerNorm(12))
plain, x = copy.deepcopy(layers), torch.randn(2, 7, 12)
plan = {
    "0": SequenceParallel(),
    "1": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    "3": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "4": SequenceParallel(),
}
parallelize_module(layers, mesh, plan)
parallelize_module(layers, mesh, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)))
for model in (layers, plain):
    (model(x) ** 3).mean().backward()
for p, q in zip(layers.parameters(), plain.parameters()):
    assert torch.allclose(p.grad.full_tensor(), q.grad, rtol=0, atol=1e-12)

# the loss of divided classes: 9 of them, so that ranks have different numbers
torch.manual_seed(2)
plain = nn.Linear(12, 9)
layer, x = copy.deepcopy(plain), torch.randn(5, 3, 12)
parallelize_module(layer, mesh, ColwiseParallel(use_local_output=False))
target = torch.randint(0, 9, (5, 3))
target[0, 0] = -100
for options in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"weight": torch.rand(9)}, {"ignore_index": 4}):
    if "ignore_index" in options:
        target[0, 0] = 4
    wanted = F.cross_entropy(plain(x).transpose(1, 2), target, **options)
    with loss_parallel():
        loss = F.cross_entropy(layer(x).transpose(1, 2), target, **options)
    assert loss.placements == (Replicate(),)
    assert torch.allclose(loss.to_local(), wanted, rtol=0, atol=1e-12)
    wanted.sum().backward()
    loss.sum().backward()
    for p, q in zip(layer.parameters(), plain.parameters()):
        assert torch.allclose(p.grad.full_tensor(), q.grad, rtol=0, atol=1e-12)
with loss_parallel():
    for scores, labels, error in (
        (layer(x).redistribute(placements=[Replicate()])[0], target[0], ValueError),
        (layer(x).select(0, 0), torch.full((3,), 9), IndexError),
    ):
        try:
            F.cross_entropy(scores, labels)
        except error:
            continue
        raise AssertionError(f"expected {error}")
dist.destroy_process_group()
