"""Training on GPUs that communicate by NCCL: the losses are those of one process with the whole batch."""

import os

from tests.distributed import devices

devices.install()

import tensorgrad as torch  # noqa: E402
import tensorgrad.distributed as dist  # noqa: E402
from tensorgrad import nn  # noqa: E402
from tensorgrad.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict  # noqa: E402
from tensorgrad.distributed.fsdp import (  # noqa: E402
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    OffloadPolicy,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
    fully_shard,
)
from tensorgrad.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from tensorgrad.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
os.environ["LOCAL_RANK"] = str(devices.own_gpu(rank))
mesh = dist.init_device_mesh("cuda", (size,))
here = torch.device("cuda", devices.own_gpu(rank))
assert torch.cuda.current_device() == here.index and mesh.device_type == "cuda"
torch.manual_seed(1)
x, y = torch.randn(8, 6, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
mine = slice(rank * 8 // size, (rank + 1) * 8 // size)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def losses(made, inputs, targets):
    optimizer, found = torch.optim.Adam(made.parameters(), lr=0.05), []
    for _ in range(3):
        result = made(inputs)
        loss = ((result - targets.to(result.device)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return torch.stack(found)


def check(made, inputs=x[mine], targets=y[mine]):
    got = losses(made, inputs, targets)
    assert got.device == here
    dist.all_reduce(got, dist.ReduceOp.AVG)
    assert torch.allclose(got.cpu(), wanted, rtol=0, atol=1e-12), (got, wanted)


def divided(made, policy):
    fully_shard(made[0], mesh=mesh, offload_policy=policy)
    return fully_shard(made, mesh=mesh, offload_policy=policy)


wanted = losses(model(), x, y)
check(nn.parallel.DistributedDataParallel(model().to(here), device_ids=[rank]))
for policy, home in ((OffloadPolicy(), "cuda"), (CPUOffloadPolicy(), "cpu")):
    made = divided(model(), policy)
    assert {p.to_local().device.type for p in made.parameters()} == {home}
    check(made)
    assert {p.to_local().device.type for p in made.parameters()} == {home}
for keeps, offload, home in ((False, False, "cuda"), (True, False, "cuda"), (True, True, "cpu")):
    made = FullyShardedDataParallel(
        model(), device_id=here, use_orig_params=keeps, cpu_offload=CPUOffload(offload),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
    )  # fmt: skip
    check(made)
    assert {p.device.type for p in made.parameters()} == {home}
    plain = made.state_dict()
    assert {p.device for p in plain.values()} == {here} and made.clip_grad_norm_(1.0) == 0
    made.load_state_dict({name: value.cpu() * 2 for name, value in plain.items()})
    with FullyShardedDataParallel.summon_full_params(made):
        assert all(torch.equal(p, plain[name] * 2) for name, p in made.named_parameters())
    optimizer = torch.optim.Adam(made.parameters())
    made(x[mine]).sum().backward()
    optimizer.step()
    config = ShardedStateDictConfig(offload_to_cpu=True), ShardedOptimStateDictConfig(offload_to_cpu=True)
    with FullyShardedDataParallel.state_dict_type(made, StateDictType.SHARDED_STATE_DICT, *config):
        pieces, states = made.state_dict(), made.optim_state_dict(made, optimizer)
        assert {p.to_local().device.type for p in pieces.values()} == {"cpu"}
        assert not made.load_state_dict(pieces).missing_keys
        made.optim_state_dict_to_load(made, optimizer, states, load_directly=True)
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
check(parallelize_module(model().to(here), mesh, plan), x.to(here), y)

# a model without memory gets what rank 0 has loaded
with torch.device("meta"):
    made = divided(model(), OffloadPolicy())
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(made, model().state_dict() if rank == 0 else {}, options=options)
check(made)
dist.destroy_process_group()
