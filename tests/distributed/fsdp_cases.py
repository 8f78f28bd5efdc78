"""fully_shard: the losses of several ranks are those of one process with the whole batch."""

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad import nn
from tensorgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from tensorgrad.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from tensorgrad.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from tensorgrad.distributed.tensor import DTensor

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 13, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(7, 8), nn.Tanh(), layer, nn.LayerNorm(8), nn.Linear(8, 3))


def divided(**options):
    made = model()
    for layer in made:
        if isinstance(layer, nn.Linear | nn.TransformerEncoderLayer):
            fully_shard(layer, **options)
    return fully_shard(made, **options)


def losses(made, x, y, make_optimizer, parts=1):
    """Losses of four steps, each of a batch in this many parts."""
    optimizer, found = make_optimizer(made.parameters()), []
    for _ in range(4):
        total = 0.0
        for i, (inputs, targets) in enumerate(zip(x.chunk(parts), y.chunk(parts))):
            if isinstance(made, FSDPModule):
                made.set_requires_gradient_sync(i == parts - 1)
            loss = ((made(inputs) - targets) ** 2).mean() / parts
            loss.backward()
            total = total + loss.detach()
        norm = nn.utils.clip_grad_norm_(made.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        found += [total, norm]
    return torch.stack(found)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
}
for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
    torch.set_default_dtype(dtype)
    torch.manual_seed(1)
    x, y = torch.randn(24, 5, 7), torch.randn(24, 5, 3)
    mine = slice(rank * 24 // size, (rank + 1) * 24 // size)
    for name, make_optimizer in OPTIMIZERS.items():
        wanted = losses(model(), x, y, make_optimizer)
        settings = ((True, 1), (False, 1), (None, 2)) if name == "adam" and dtype == torch.float64 else ((None, 1),)
        for reshard, parts in settings:
            got = losses(divided(reshard_after_forward=reshard), x[mine], y[mine], make_optimizer, parts)
            dist.all_reduce(got, dist.ReduceOp.AVG)
            assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), (name, dtype, reshard, got, wanted)

# at rest, a rank has its pieces only; the state dictionary has them too
made = divided()
elements = sum(p.to_local().numel() for p in made.parameters())
whole = sum(p.numel() for p in made.parameters())
assert elements <= whole / size + sum(p[0].numel() for p in model().parameters())
made(x[mine]).sum().backward()
assert all(isinstance(p, DTensor) and p.grad.placements == p.placements for p in made.parameters())
assert {n: tuple(p.full_tensor().shape) for n, p in made.state_dict().items()} == {
    n: tuple(p.shape) for n, p in model().state_dict().items()
}
# what backward needs of a gathered parameter is gathered again
output = made(x[mine]).sum()
assert not any(layer._fsdp.group.gathered for layer in made if isinstance(layer, FSDPModule))
output.backward()
assert not any(layer._fsdp.group.gathered for layer in made.modules() if isinstance(layer, FSDPModule))

# layers that are computed again in the backward pass, wrapped before they are divided or after
wanted = losses(model(), x, y, OPTIMIZERS["sgd"])
for first in (True, False):
    made = model()
    for i, layer in enumerate(made):
        if isinstance(layer, nn.Linear | nn.TransformerEncoderLayer):
            made[i] = fully_shard(checkpoint_wrapper(layer)) if first else checkpoint_wrapper(fully_shard(layer))
    got = losses(fully_shard(made), x[mine], y[mine], OPTIMIZERS["sgd"])
    dist.all_reduce(got, dist.ReduceOp.AVG)
    assert torch.allclose(got, wanted, rtol=2e-5, atol=2e-5), (first, got, wanted)
    assert not any(layer._fsdp.group.gathered for layer in made.modules() if isinstance(layer, FSDPModule))

# bfloat16 for computing, float32 for parameters
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
wanted = losses(model(), x, y, OPTIMIZERS["sgd"])
got = losses(divided(mp_policy=policy), x[mine], y[mine], OPTIMIZERS["sgd"]).float()
dist.all_reduce(got, dist.ReduceOp.AVG)
assert torch.allclose(got, wanted, rtol=0.1, atol=0.05), (got, wanted)

# a gradient that overflows on one rank makes all of them skip the step
torch.set_default_dtype(torch.float32)
made = divided()
scaler, optimizer = ShardedGradScaler("cpu", init_scale=8.0), OPTIMIZERS["sgd"](made.parameters())
before = [p.to_local().clone() for p in made.parameters()]
for overflows, scale in ((True, 4.0), (False, 4.0)):
    optimizer.zero_grad()
    scaler.scale(made(x[mine].float()).square().mean()).backward()
    if overflows and rank == size - 1:
        [p.grad.to_local().fill_(float("inf")) for p in made[0].parameters() if p.to_local().numel()]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == scale
    assert all(torch.equal(p.to_local(), b) for p, b in zip(made.parameters(), before)) is overflows

# two dimensions: copies of divided parameters
if size == 4:
    torch.set_default_dtype(torch.float64)
    mesh = dist.init_device_mesh("cpu", (2, 2))
    wanted = losses(model(), x.double(), y.double(), OPTIMIZERS["adam"])
    got = losses(divided(mesh=mesh), x[mine].double(), y[mine].double(), OPTIMIZERS["adam"])
    dist.all_reduce(got, dist.ReduceOp.AVG)
    assert torch.allclose(got, wanted, rtol=0, atol=1e-12), (got, wanted)
dist.destroy_process_group()
