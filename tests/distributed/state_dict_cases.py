"""What each rank runs for `test_checkpoint_state_dict.py`, with LIBRARY and FOLDER as arguments. It prints JSON."""

import copy
import json
import sys
import warnings
from pathlib import Path

from tests.distributed.ending import end

if sys.argv[1] == "tensorgrad":
    import tensorgrad as torch
    import tensorgrad.distributed as dist
    import tensorgrad.distributed.checkpoint as dcp
    from tensorgrad.distributed.checkpoint import state_dict as sd
    from tensorgrad.distributed.fsdp import fully_shard
    from tensorgrad.distributed.tensor import DTensor
else:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as sd
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(sys.argv[2])
x = torch.arange(24, dtype=torch.float64).reshape(8, 3).sin()


def model(kind, scale=1.0, frozen=False):
    inner = torch.nn.Sequential(torch.nn.Linear(5, 3, bias=False), torch.nn.BatchNorm1d(3))
    made = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), inner).double()
    with torch.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_((torch.arange(p.numel(), dtype=torch.float64) * scale + i).cos().reshape(p.shape))
    if frozen:
        made[0].bias.requires_grad_(False)
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(made)
    if kind == "sharded":
        fully_shard(made[0])
        fully_shard(made)
    return made


def optimizer(made, lr=0.1, groups=True, **options):
    parameters = list(made.parameters())
    if not groups:
        return torch.optim.Adam([p for p in parameters if p.requires_grad], lr=lr, **options)
    return torch.optim.Adam([{"params": parameters[2:], "lr": 2 * lr}, {"params": parameters[:2]}], lr=lr, **options)


def train(made, *optimizers, steps=2):
    for _ in range(steps):
        made(x).square().sum().backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
    return made


def described(value):
    """As JSON; of DTensors the whole."""
    if isinstance(value, DTensor):
        return ["DTensor", described(value.full_tensor())]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), [round(v, 9) + 0.0 for v in value.double().flatten().tolist()], list(value.shape)]
    if isinstance(value, dict):
        return {str(key): described(item) for key, item in value.items()}
    return [described(item) for item in value] if isinstance(value, list | tuple) else value


def full(made):
    return described(copy.deepcopy(sd.get_model_state_dict(made, options=sd.StateDictOptions(full_state_dict=True))))


def fails(function):
    try:
        function()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return "no error"


OPTIONS = {
    "plain": {}, "full": {"full_state_dict": True}, "flat": {"flatten_optimizer_state_dict": True},
    "rank 0": {"full_state_dict": True, "cpu_offload": True},
    "flat and full": {"flatten_optimizer_state_dict": True, "full_state_dict": True},
}  # fmt: skip


def state_dicts_and_resuming():
    found = {}
    for kind in ("plain", "ddp", "sharded"):
        first = model(kind)
        adam = optimizer(first)
        train(first, adam)
        for name, options in OPTIONS.items():
            chosen = sd.StateDictOptions(**options)
            states = sd.get_state_dict(first, adam, options=chosen)
            found[f"{kind}, {name}"] = described(states)
            if name == "rank 0":
                chosen = sd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            second = model(kind, 0.5)
            other = optimizer(second, 0.7)
            weights, state = copy.deepcopy(states)
            if name == "flat and full" and sys.argv[1] == "torch":
                continue  # it cannot load this
            if name == "rank 0":  # PyTorch's set_state_dict waits forever if the other ranks have nothing
                keys = sd.set_model_state_dict(second, weights, options=chosen)
                sd.set_optimizer_state_dict(second, other, state, options=chosen)
            else:
                keys = sd.set_state_dict(
                    second, other, model_state_dict=weights, optim_state_dict=state, options=chosen
                )
            assert not keys.missing_keys and not keys.unexpected_keys
            own = copy.deepcopy(adam.state_dict())
            reference = model(kind)
            mine = optimizer(reference)
            train(reference, mine, steps=2)
            mine.load_state_dict(own)
            assert full(train(second, other)) == full(train(reference, mine)), (kind, name)
    return found


def other_ways_of_dividing():
    """What one kind of model saved, the others load, whole or through rank 0."""
    first = train(model("plain"), adam := optimizer(model("plain")))
    adam = optimizer(first)
    train(first, adam)
    options = sd.StateDictOptions(full_state_dict=True)
    states = sd.get_state_dict(first, adam, options=options)
    wanted = None
    for kind in ("plain", "ddp", "sharded"):
        for name in ("everywhere", "broadcast"):
            second = model(kind, 0.5)
            other = optimizer(second, 0.7)
            weights, state = copy.deepcopy(states) if name == "everywhere" or rank == 0 else ({}, {})
            chosen = sd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=name == "broadcast")
            sd.set_model_state_dict(second, weights, options=chosen)
            sd.set_optimizer_state_dict(second, other, state, options=chosen)
            result = full(train(second, other))
            wanted = wanted or result
            assert result == wanted, (kind, name)
    return wanted


def frozen_and_fresh():
    found = []
    for kind in ("plain", "ddp"):
        made = model(kind, frozen=True)
        found.append(described(sd.get_model_state_dict(made, options=sd.StateDictOptions(ignore_frozen_params=True))))
        found.append(described(sd.get_optimizer_state_dict(made, optimizer(made, groups=False))))
    made = model("plain")
    parameters = list(made.parameters())
    several = torch.optim.SGD(parameters[:1], lr=0.1, momentum=0.9), torch.optim.AdamW(parameters[1:], lr=0.2)
    train(made, *several)
    state = sd.get_optimizer_state_dict(made, several)
    found.append(described(state))
    for o in several:
        o.param_groups[0]["lr"] = 5.0
    sd.set_optimizer_state_dict(made, several, copy.deepcopy(state))
    assert [o.param_groups[0]["lr"] for o in several] == [0.1, 0.2]
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
    for i, p in enumerate(tied.parameters()):
        torch.nn.init.constant_(p, i + 0.5)
    tied[1].weight = tied[0].weight
    adam = torch.optim.Adam(tied.parameters())
    train(tied, adam)
    states = sd.get_state_dict(tied, adam)
    found.append(described(states))
    sd.set_state_dict(tied, adam, model_state_dict=states[0], optim_state_dict=states[1])
    submodule = model("plain")
    found.append(described(sd.get_model_state_dict(submodule, submodules={submodule[2]})))
    found.append(list(sd.get_model_state_dict(submodule, submodules={submodule[2]},
                                              options=sd.StateDictOptions(keep_submodule_prefixes=False))))  # fmt: skip
    keys = sd.set_model_state_dict(submodule, {"0.bias": torch.ones(5).double(), "no": x},
                                   options=sd.StateDictOptions(strict=False))  # fmt: skip
    found.append([sorted(keys.missing_keys), sorted(keys.unexpected_keys), described(submodule[0].bias.detach())])
    return found


def errors():
    plain, ddp = model("plain"), model("ddp")
    adam = optimizer(plain)
    weights, state = copy.deepcopy(sd.get_state_dict(plain, adam))
    less = {**state, "state": {name: own for name, own in state["state"].items() if name != "0.bias"}}
    keys = sd.set_model_state_dict(ddp, {}, options=sd.StateDictOptions(strict=False))
    if sys.argv[1] == "tensorgrad":  # PyTorch does not check this
        sharded, options = model("sharded"), sd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        found = fails(lambda: sd.set_model_state_dict(sharded, sharded.state_dict(), options=options))
        assert "rank 0 must have whole tensors" in found[1], found
    return [
        fails(lambda: sd.set_model_state_dict(plain, {})),
        fails(lambda: sd.set_model_state_dict(ddp, {"0.bias": weights["0.bias"]})),
        fails(lambda: sd.set_model_state_dict(plain, {**weights, "0.bias": torch.ones(3)})),
        fails(lambda: sd.set_model_state_dict(plain, {**weights, "no": torch.ones(3)})),
        fails(lambda: sd.get_model_state_dict(plain, options=sd.StateDictOptions(broadcast_from_rank0=True))),
        fails(lambda: sd.get_optimizer_state_dict(plain, ())),
        fails(lambda: sd.set_optimizer_state_dict(plain, adam, {})),
        fails(lambda: sd.set_optimizer_state_dict(plain, adam, less)),
        len(keys.missing_keys),
    ]


def checkpoints():
    """Saves, and loads what the other library saved, with other weights before."""
    made = model("sharded")
    adam = optimizer(made)
    train(made, adam)
    dcp.save(dict(zip(("model", "optimizer"), sd.get_state_dict(made, adam))), checkpoint_id=folder / sys.argv[1])
    second = model("sharded", 0.5)
    other = optimizer(second, 0.7)
    states = dict(zip(("model", "optimizer"), sd.get_state_dict(second, other)))
    there = folder / ("torch" if (folder / "torch").exists() else "tensorgrad")
    dcp.load(states, checkpoint_id=there)
    sd.set_state_dict(second, other, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    assert other.param_groups[0]["lr"] == 0.2
    assert full(train(second, other)) == full(train(made, adam))


CASES = [state_dicts_and_resuming, other_ways_of_dividing, frozen_and_fresh, errors, checkpoints]
print(json.dumps({case.__name__: case() for case in CASES}))
dist.barrier()
end(dist)
