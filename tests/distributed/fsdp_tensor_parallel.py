"""fully_shard over one dimension of a mesh, tensor parallelism over the other: losses are those of one process."""

import copy

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad import nn
from tensorgrad.distributed.fsdp import fully_shard
from tensorgrad.distributed.tensor import Replicate, Shard
from tensorgrad.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from tensorgrad.distributed.tensor.placement_types import _StridedShard

dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh["dp"], mesh["tp"]


def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6), nn.LayerNorm(6), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)
    )


def parallel(**options):
    model = make()
    plan = {
        "0": ColwiseParallel(), "2": RowwiseParallel(output_layouts=Shard(1)), "3": SequenceParallel(),
        "4": ColwiseParallel(input_layouts=Shard(1)), "6": RowwiseParallel(),
    }  # fmt: skip
    parallelize_module(model, tp, plan)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=dp, **options)
    return fully_shard(model, mesh=dp, **options)


def train(model, x, y, clip):
    optimizer, found = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(4):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        found.append(loss.detach())
        if clip:
            found.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack([getattr(f, "full_tensor", lambda f=f: f)() for f in found])


torch.manual_seed(1)
x, y = torch.randn(8, 4, 6), torch.randn(8, 4, 3)
mine = slice(4 * dp.get_local_rank(), 4 * dp.get_local_rank() + 4)
plain = make()
for reshard in (None, False):
    plain = make()
    wanted = train(plain, x, y, clip=True)
    model = parallel(reshard_after_forward=reshard)
    weights = model[0].weight, model[2].weight, model[2].bias
    assert [p.device_mesh == mesh for p in weights] == [True] * 3
    assert [p.placements for p in weights] == [
        (_StridedShard(0, split_factor=2), Shard(0)), (Shard(0), Shard(1)), (Shard(0), Replicate())
    ]  # fmt: skip
    got = train(model, x[mine], y[mine], clip=True)
    dist.all_reduce(got, dist.ReduceOp.AVG)
    assert torch.allclose(got, wanted, rtol=0, atol=1e-12), (got, wanted)
    for (name, p), q in zip(model.state_dict().items(), plain.state_dict().values()):
        assert torch.allclose(p.full_tensor(), q, rtol=0, atol=1e-12), name

# a layer that is not divided for tensor parallelism
model = make()
parallelize_module(model, tp, {"0": ColwiseParallel(), "2": RowwiseParallel()})
model = fully_shard(model, mesh=dp)
got = train(model, x[mine], y[mine], clip=False)
dist.all_reduce(got, dist.ReduceOp.AVG)
assert torch.allclose(got, train(make(), x, y, clip=False), rtol=0, atol=1e-12)
assert model[6].weight.device_mesh == dp

model = make()
parallelize_module(model, dist.init_device_mesh("cpu", (4,)), {"0": ColwiseParallel()})
try:
    fully_shard(model, mesh=dp)
except ValueError as error:
    assert "take both from one mesh" in str(error)
else:
    raise AssertionError("a mesh of its own was accepted")

# ranks that use different parameters
torch.manual_seed(3)
layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
plain = copy.deepcopy(layers)


class Choice(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x, number):
        return self.layers[number](x)


for layer in layers:
    fully_shard(layer)
model = fully_shard(Choice(layers))
model.set_reduce_scatter_unused_params(True)
inputs = torch.randn(4, 2, 3)
for _ in range(2):
    model(inputs[dist.get_rank()], dist.get_rank() % 3).sum().backward()
    for rank in range(4):
        (plain[rank % 3](inputs[rank]).sum() / 4).backward()
for p, q in zip(layers.parameters(), plain.parameters()):
    assert torch.allclose(p.grad.full_tensor(), torch.zeros_like(q) if q.grad is None else q.grad, rtol=0, atol=1e-12)

# copies of divided parameters: gradients are averaged over the copies in the second pass only
model, plain = fully_shard(nn.Linear(3, 3), mesh=mesh), nn.Linear(3, 3)
plain.load_state_dict({name: p.full_tensor() for name, p in model.state_dict().items()})
seen = []
model.set_all_reduce_hook(lambda flat: seen.append(flat.numel()))
for last in (False, True):
    model.set_requires_all_reduce(last)
    (model(inputs[dist.get_rank()]) ** 2).sum().backward()
    ((plain(inputs) ** 2).sum() / 4).backward()
    assert (model.weight.grad is not None) == last and len(seen) == last
assert torch.allclose(model.weight.grad.full_tensor(), plain.weight.grad, rtol=0, atol=1e-12)

# after an exception in backward, the next iteration is as if there had been none
model.zero_grad()
plain.zero_grad()


def fail(grad):
    raise ValueError("no gradient")


out = model(inputs[dist.get_rank()])
out.register_hook(fail)
try:
    out.sum().backward()
except ValueError:
    model.reset_iter_state()
model(inputs[dist.get_rank()]).sum().backward()
(plain(inputs).sum() / 4).backward()
assert torch.allclose(model.weight.grad.full_tensor(), plain.weight.grad, rtol=0, atol=1e-12)
dist.destroy_process_group()
