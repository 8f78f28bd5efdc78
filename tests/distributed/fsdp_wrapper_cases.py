"""FullyShardedDataParallel: the numbers of several ranks are those of one process with the whole batch."""

import copy
import shutil
import tempfile
import warnings

import tensorgrad as torch
import tensorgrad.distributed as dist
import tensorgrad.distributed.checkpoint as dcp
from tensorgrad import nn
from tensorgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from tensorgrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from tensorgrad.distributed.fsdp import (
    CPUOffload,
    FlatParameter,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from tensorgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
from tensorgrad.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy
from tensorgrad.distributed.tensor import DTensor

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
folders = [tempfile.mkdtemp()]  # rank 0's is used
dist.broadcast_object_list(folders)
FOLDER = folders[0]
POLICY = CustomPolicy(lambda module: type(module) in (nn.Linear, nn.TransformerEncoderLayer))


def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 13, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(7, 8), nn.Tanh(), layer, nn.LayerNorm(8), nn.Linear(8, 3))


def losses(made, optimizer, x, y, steps=3, parts=1):
    """Losses and norms of some steps, each of a batch in this many parts."""
    found = []
    for _ in range(steps):
        total = 0.0
        for i, (inputs, targets) in enumerate(zip(x.chunk(parts), y.chunk(parts))):
            loss = ((made(inputs) - targets) ** 2).mean() / parts
            if i < parts - 1 and isinstance(made, FSDP):
                with made.no_sync():
                    loss.backward()
            else:
                loss.backward()
            total = total + loss.detach()
        if isinstance(made, FSDP):
            norm = made.clip_grad_norm_(0.5)
        else:
            norm = nn.utils.clip_grad_norm_(made.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        found += [total, norm]
    return torch.stack(found)


def mean(values):
    dist.all_reduce(values, dist.ReduceOp.AVG)
    return values


def close(a, b, tolerance=1e-12):
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def same(state, plain, tolerance=1e-12):
    return list(state) == list(plain) and all(close(state[name], plain[name], tolerance) for name in plain)


torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
x, y = torch.randn(24, 5, 7), torch.randn(24, 5, 3)
mine = slice(rank * 24 // size, (rank + 1) * 24 // size)
S = ShardingStrategy
WAYS = [
    ({}, 1), ({"use_orig_params": True}, 2), ({"sharding_strategy": S.SHARD_GRAD_OP}, 2),
    ({"sharding_strategy": S.NO_SHARD}, 1), ({"sharding_strategy": S.NO_SHARD, "use_orig_params": True}, 2),
    ({"sharding_strategy": S.SHARD_GRAD_OP, "use_orig_params": True, "cpu_offload": CPUOffload(True)}, 1),
    ({"auto_wrap_policy": None}, 1),
]  # fmt: skip
if size == 4:
    mesh = dist.init_device_mesh("cpu", (2, 2))
    WAYS += [
        ({"sharding_strategy": S.HYBRID_SHARD, "device_mesh": mesh}, 1),
        ({"sharding_strategy": S._HYBRID_SHARD_ZERO2, "use_orig_params": True,
          "process_group": (mesh.get_group(1), mesh.get_group(0))}, 2),
    ]  # fmt: skip
plain = model()
plain_optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
wanted = losses(plain, plain_optimizer, x, y)
after, after_optimizer = plain.state_dict(), plain_optimizer.state_dict()["state"]
names = [name for name, _ in plain.named_parameters()]

for options, parts in WAYS:
    options = {"auto_wrap_policy": POLICY, **options}
    made = FSDP(model(), **options)
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    got = mean(losses(made, optimizer, x[mine], y[mine], parts=parts))
    # gathered norms are computed in float32, as PyTorch does
    assert close(got[::2], wanted[::2], 1e-6), (options, got, wanted)
    assert close(got[1::2], wanted[1::2], 1e-5), (options, got, wanted)
    units = FSDP.fsdp_modules(made)
    assert [unit.check_is_root() for unit in units] == [True] + [False] * (len(units) - 1)
    assert not any(unit._group.gathered for unit in units), options
    strategy, keeps = options.get("sharding_strategy"), options.get("use_orig_params", False)
    whole = sum(p.numel() for p in plain.parameters())
    elements = sum(p.numel() for p in made.parameters())
    divided_by = 1 if strategy is S.NO_SHARD else 2 if "HYBRID" in str(strategy) else size
    assert abs(elements - whole / divided_by) < 8 * len(units) * len(names), (options, elements, whole)
    assert all(isinstance(p, FlatParameter) for p in made.parameters()) is not keeps

    # the state of the model, whole, and of the optimizer
    state = made.state_dict()
    assert same(state, after, 1e-6), options
    found = FSDP.optim_state_dict(made, optimizer)
    assert sorted(found["param_groups"][0]["params"]) == sorted(names)
    for number, name in enumerate(names):
        entry, other = found["state"][name], after_optimizer[number]
        assert sorted(entry) == sorted(other) and all(close(entry[key], other[key], 1e-6) for key in other), name

    # both are loaded into fresh ones, which go on as this one does
    other = FSDP(model(), **options)
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
    assert not other.load_state_dict(state).missing_keys
    other_optimizer.load_state_dict(FSDP.optim_state_dict_to_load(other, other_optimizer, found))
    more, same_more = (losses(m, o, x[mine], y[mine], 1) for m, o in ((made, optimizer), (other, other_optimizer)))
    assert torch.equal(more, same_more), (options, more, same_more)

    if strategy is not S.NO_SHARD:  # pieces
        with FSDP.state_dict_type(made, StateDictType.SHARDED_STATE_DICT):
            pieces, optimizer_pieces = made.state_dict(), FSDP.optim_state_dict(made, optimizer)
        assert FSDP.get_state_dict_type(made).state_dict_type is StateDictType.FULL_STATE_DICT
        assert all(isinstance(pieces[name], DTensor) for name in names)
        assert all(isinstance(optimizer_pieces["state"][name]["exp_avg"], DTensor) for name in names)
        full = made.state_dict()
        assert all(torch.equal(pieces[name].full_tensor(), full[name]) for name in names)

        dcp.save({"model": pieces, "optimizer": optimizer_pieces}, checkpoint_id=FOLDER)  # as Lightning resumes
        other = FSDP(model(), **options)
        other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
        with FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            loaded = {"model": other.state_dict()}
            dcp.load(loaded, checkpoint_id=FOLDER)
            other.load_state_dict(loaded["model"])
            reader = dcp.FileSystemReader(FOLDER)
            resumed = dcp.optimizer.load_sharded_optimizer_state_dict(loaded["model"], "optimizer", reader)["optimizer"]
            assert all(isinstance(resumed["state"][name]["exp_avg"], DTensor) for name in names)
            other_optimizer.load_state_dict(FSDP.optim_state_dict_to_load(other, other_optimizer, resumed))
        assert same(other.state_dict(), full, 0)
        again = FSDP.optim_state_dict(other, other_optimizer)["state"]
        assert all(
            torch.equal(again[n]["exp_avg"], optimizer_pieces["state"][n]["exp_avg"].full_tensor()) for n in names
        )

        other = FSDP(model(), **options)
        with FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            other.load_state_dict(pieces)
            other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
            FSDP.optim_state_dict_to_load(other, other_optimizer, optimizer_pieces, load_directly=True)
        assert same(other.state_dict(), full, 0)
        again = FSDP.optim_state_dict(other, other_optimizer)["state"]
        assert all(
            torch.equal(again[n]["exp_avg"], optimizer_pieces["state"][n]["exp_avg"].full_tensor()) for n in names
        )

    if strategy is not S.NO_SHARD and not keeps and "device_mesh" not in options:  # the ranks' vectors
        with FSDP.state_dict_type(made, StateDictType.LOCAL_STATE_DICT):
            local = made.state_dict()
            assert {name.rpartition(".")[2] for name in local} == {"_flat_param"}
        other = FSDP(model(), **options)
        with FSDP.state_dict_type(other, StateDictType.LOCAL_STATE_DICT):
            other.load_state_dict(local)
        assert same(other.state_dict(), full, 0)

    # only rank 0 has the state
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
    with FSDP.state_dict_type(made, StateDictType.FULL_STATE_DICT, *config):
        first, first_optimizer = made.state_dict(), FSDP.optim_state_dict(made, optimizer)
        if strategy is not S.NO_SHARD and divided_by == size:
            assert list(first) == (list(after) if rank == 0 else [])
        assert bool(first_optimizer) is (rank == 0)
        loaded = FSDP.optim_state_dict_to_load(made, optimizer, first_optimizer)
        optimizer.load_state_dict(loaded)

    # parameters as a whole, which may be written
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with FSDP.summon_full_params(made):
        assert [name for name, _ in made.named_parameters()] == names
        assert all(torch.equal(p, before[name]) for name, p in made.named_parameters())
        with torch.no_grad():
            [p.add_(1.0) for p in made.parameters()]
    assert all(torch.equal(value, before[name] + 1) for name, value in made.state_dict().items())
    if strategy is not S.NO_SHARD:
        with FSDP.summon_full_params(made, writeback=False), torch.no_grad():
            [p.zero_() for p in made.parameters()]
    with torch.no_grad():
        assert torch.isfinite(made(x[mine])).all()  # nothing of that is used
    assert not any(unit._group.gathered for unit in units)
    assert all(torch.equal(value, before[name] + 1) for name, value in made.state_dict().items())
    made.apply(lambda module: nn.init.zeros_(module.bias) if isinstance(module, nn.Linear) else None)
    assert not made.state_dict()["4.bias"].any() and made.state_dict()["4.weight"].all()
    if keeps:
        made(x[mine]).square().mean().backward()
        one = model()
        one.load_state_dict(made.state_dict())
        one(x[mine]).square().mean().backward()
        with FSDP.summon_full_params(made, with_grads=True):
            for name, p in made.named_parameters():
                grad = mean(dict(one.named_parameters())[name].grad)
                assert close(p.grad, grad, 1e-9), (name, p.grad, grad)
        made.zero_grad()

# what is ignored stays as it is; frozen parameters stay frozen
made = model()
made[0].requires_grad_(False)
ignored = made[4]
made = FSDP(made, ignored_modules=[ignored], use_orig_params=True)
assert list(made.state_dict()) == list(after) and ignored.weight.shape == (3, 8)
kept = [p for p in made.parameters() if p.numel()]
made(x[mine]).sum().backward()
assert all((p.grad is not None) is p.requires_grad for p in kept) and ignored.weight.grad is not None
assert "4.weight" in FSDP.optim_state_dict(made, torch.optim.SGD(made.parameters(), 0.1))["param_groups"][0]["params"]
try:
    frozen = model()
    frozen[0].requires_grad_(False)
    FSDP(frozen)
    raise AssertionError("frozen parameters beside others are refused without use_orig_params")
except ValueError as error:
    assert "requires_grad" in str(error)

# rank 0 says how all begin; also on the meta device
torch.manual_seed(rank)
made = FSDP(nn.Linear(3, 5), sync_module_states=True)
torch.manual_seed(0)
assert torch.equal(made.state_dict()["weight"], nn.Linear(3, 5).weight)
made = FSDP(nn.Sequential(nn.Linear(3, 5, device="meta")), param_init_fn=lambda m: m.to_empty(device="cpu"))
made.load_state_dict({"0.weight": torch.ones(5, 3), "0.bias": torch.zeros(5)})
assert torch.equal(made(torch.ones(1, 3)), torch.full((1, 5), 3.0))

# a conversion reaches the parts; parameters are fewer than ranks
made = FSDP(nn.Linear(1, 1, bias=False), use_orig_params=True)
made.to(torch.float32)
assert made(torch.ones(1, 1, dtype=torch.float32)).dtype == torch.float32
assert sum(p.numel() for p in made.parameters()) == (rank == 0)
assert made.state_dict()["weight"].shape == (1, 1)
made.double()

# one module, two passes, and one of them without gradients
made, one = FSDP(model(), auto_wrap_policy=POLICY), model()
for m in (made, one):
    with torch.no_grad():
        m(x[:2])
    (m(x[:2]).sum() + m(x[2:4]).square().sum()).backward()
made_norm, norm = made.clip_grad_norm_(1e9), nn.utils.clip_grad_norm_(one.parameters(), 1e9)
assert close(made_norm, norm, 1e-5)


# activations that are computed again, inside of a wrapper and around it
def checkpointed(inside):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 7)) for _ in range(2)]
    wrapped = [FSDP(checkpoint_wrapper(m)) if inside else checkpoint_wrapper(FSDP(m)) for m in layers]
    return FSDP(nn.Sequential(*wrapped, nn.Linear(7, 2)))


for inside in (True, False):
    made = checkpointed(inside)
    one, first = nn.Sequential(nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 7)), made.state_dict()
    two, last = copy.deepcopy(one), nn.Linear(7, 2)
    for name, m in (("0.", one), ("1.", two), ("2.", last)):
        m.load_state_dict({key[2:]: value for key, value in first.items() if key.startswith(name)})
    made(x[:3]).square().sum().backward()
    last(two(one(x[:3]))).square().sum().backward()
    norm = nn.utils.clip_grad_norm_([*one.parameters(), *two.parameters(), *last.parameters()], 1e9)
    assert close(made.clip_grad_norm_(1e9), norm, 1e-5), inside
    assert not any(unit._group.gathered for unit in FSDP.fsdp_modules(made))

# dtypes: parameters in bfloat16 while they are gathered, batch norm in float32
torch.set_default_dtype(torch.float32)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
made = FSDP(net(), mixed_precision=precision, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
output = made(x[mine].float()[:, 0])
output.float().square().mean().backward()
assert output.dtype == torch.bfloat16 and all(p.grad.dtype == torch.float32 for p in made.parameters())
state = made.state_dict()
assert {str(value.dtype) for value in state.values()} == {"torch.float32", "torch.int64"}, state
assert torch.equal(state["0.weight"], net()[0].weight)
one = net()
one(x[mine].float()[:, 0]).square().mean().backward()
with torch.no_grad():
    grads = torch.cat([mean(p.grad.reshape(-1)) for p in one.parameters()])
    assert torch.allclose(made.clip_grad_norm_(1e9), grads.norm(), rtol=0.05), (made.clip_grad_norm_(1e9), grads.norm())
made = FSDP(net(), mixed_precision=precision)
assert made.check_is_root() and made.module[1].running_mean.dtype == torch.bfloat16
assert made.state_dict()["1.running_mean"].dtype == torch.float32

# a hook in place of the mean
made = FSDP(nn.Linear(4, 4), use_orig_params=False)


def hook(told, gradient, part):
    told.append(gradient.numel())
    dist.reduce_scatter_single(part, gradient)


told = []
made.register_comm_hook(told, hook)
made(torch.ones(1, 4)).sum().backward()
assert len(told) == 1 and made._flat_param.grad[: max(min(20 - rank * made._flat_param.numel(), 1), 0)].eq(size).all()
# torch.distributed.checkpoint's state dicts: pieces with names without wrappers, or whole ones
torch.set_default_dtype(torch.float64)
for keeps in (False, True):
    made = FSDP(model(), auto_wrap_policy=POLICY, use_orig_params=keeps)
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    losses(made, optimizer, x[mine], y[mine], 1)
    weights, state = get_state_dict(made, optimizer)
    assert list(weights) == list(after) and isinstance(weights["0.weight"], DTensor)
    assert sorted(state["state"]) == sorted(names) and isinstance(state["state"]["0.weight"]["exp_avg"], DTensor)
    whole = get_model_state_dict(made, options=StateDictOptions(full_state_dict=True))
    assert same(whole, made.state_dict(), 0)
    for flat in (False, True):
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        state = get_optimizer_state_dict(made, optimizer, options=options)
        other = FSDP(model(), auto_wrap_policy=POLICY, use_orig_params=not keeps)  # the other way round
        other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
        set_state_dict(
            other, other_optimizer, model_state_dict=weights if flat else whole, optim_state_dict=state,
            options=StateDictOptions(full_state_dict=not flat),
        )  # fmt: skip
        assert same(other.state_dict(), whole, 0) and other_optimizer.param_groups[0]["lr"] == 0.01
        a, b = (FSDP.optim_state_dict(m, o)["state"] for m, o in ((made, optimizer), (other, other_optimizer)))
        assert all(torch.equal(a[name][key], b[name][key]) for name in names for key in a[name]), (keeps, flat)
dist.barrier()
if rank == 0:
    shutil.rmtree(FOLDER)
dist.destroy_process_group()
