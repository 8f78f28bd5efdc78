"""What every rank runs for test_zero.py: `python zero.py tensorgrad|torch`. It prints JSON."""

import copy
import json
import sys
import warnings

from tests.distributed.ending import end

if sys.argv[1] == "tensorgrad":
    import tensorgrad as torch
    import tensorgrad.distributed as dist
    from tensorgrad.distributed.algorithms.join import Join
    from tensorgrad.distributed.optim import ZeroRedundancyOptimizer as Zero
else:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer as Zero

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
SHAPES = [(3, 4), (7,), (2, 2, 5), (1,), (), (6, 2), (4,)]
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Adam": {"lr": 0.05},
    "AdamW": {"lr": 0.05, "amsgrad": True},
}


def parameters():
    values = [torch.arange(1, 1 + torch.Size(s).numel(), dtype=torch.float64).reshape(s) for s in SHAPES]
    return [torch.nn.Parameter((v * (i + 1)).sin()) for i, v in enumerate(values)]


def set_gradients(params, step):
    """The same in all processes, as after an all-reduce."""
    for i, p in enumerate(params):
        p.grad = (p.detach() * (step + 2) + i).cos()


def difference(mine, wanted):
    return max((a.detach() - b.detach()).abs().max().item() for a, b in zip(mine, wanted))


def train(optimizer, params, steps=range(4), after=lambda: None):
    for step in steps:
        set_gradients(params, step)
        optimizer.step()
        after()


def fails(function):
    try:
        function()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return "no error"


def same_numbers_as_one_process():
    for name, settings in OPTIMIZERS.items():
        for buckets in (False, True):
            mine, wanted = parameters(), parameters()
            optimizer_class = getattr(torch.optim, name)
            zero = Zero(mine, optimizer_class, parameters_as_bucket_view=buckets, **settings)
            one = optimizer_class(wanted, **settings)
            schedules = [torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5) for o in (zero, one)]
            train(zero, mine, after=schedules[0].step)
            train(one, wanted, after=schedules[1].step)
            assert difference(mine, wanted) <= 1e-12, (name, buckets)
            zero.consolidate_state_dict(to=size - 1)
            if rank == size - 1:
                saved, reference = zero.state_dict(), one.state_dict()
                assert saved["param_groups"] == reference["param_groups"]
                assert list(saved["state"]) == list(reference["state"])
                for index, state in reference["state"].items():
                    assert list(state) == list(saved["state"][index])
                    assert difference(state.values(), saved["state"][index].values()) <= 1e-12


def groups_and_frozen_parameters():
    mine, wanted = parameters(), parameters()
    for params in (mine, wanted):
        params[2].requires_grad_(False)
    zero = Zero([{"params": mine[:3], "lr": 0.3}, {"params": mine[3:5]}], torch.optim.Adam, lr=0.1)
    one = torch.optim.Adam([{"params": wanted[:3], "lr": 0.3}, {"params": wanted[3:5]}], lr=0.1)
    set_gradients(mine, 0), set_gradients(wanted, 0)
    mine[2].grad = wanted[2].grad = None
    zero.step(), one.step()
    zero.add_param_group({"params": mine[5:], "lr": 0.01})
    one.add_param_group({"params": wanted[5:], "lr": 0.01})
    for params in (mine, wanted):
        params[2].requires_grad_(True)
    train(zero, mine), train(one, wanted)
    assert difference(mine, wanted) <= 1e-12
    return [len(group["params"]) for group in zero.optim.param_groups]


def parts():
    zero = Zero(parameters(), torch.optim.Adam, lr=0.1)
    return [list(p.shape) for p in zero.optim.param_groups[0]["params"]]


def resumes_the_state_of_one_process():
    mine, wanted = parameters(), parameters()
    one = torch.optim.Adam(wanted, lr=0.1)
    train(one, wanted, range(2))
    zero = Zero(mine, torch.optim.Adam, lr=0.9)
    for p, q in zip(mine, wanted):
        p.data.copy_(q.data)
    zero.load_state_dict(copy.deepcopy(one.state_dict()))  # PyTorch changes its argument, and shares its tensors
    assert zero.param_groups[0]["lr"] == 0.1
    train(one, wanted, range(2, 5)), train(zero, mine, range(2, 5))
    assert difference(mine, wanted) <= 1e-12
    zero.consolidate_state_dict()
    return sorted(zero.state_dict()["state"]) if rank == 0 else fails(zero.state_dict)


def closures():
    params = parameters()
    zero = Zero(params, torch.optim.SGD, lr=0.1)

    def closure():
        zero.zero_grad()
        loss = sum((p**2).sum() for p in params)
        loss.backward()
        return loss

    return [round(float(zero.step(closure)), 9) for _ in range(3)]


def errors():
    p = torch.nn.Parameter(torch.ones(2))
    return [
        fails(lambda: Zero(p, torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero(3, torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero([], torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero([p, 3], torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero([{"lr": 1}], torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero([p, torch.nn.Parameter(torch.ones(2).double())], torch.optim.SGD, lr=0.1)),
        fails(lambda: Zero([p], torch.optim.SGD, lr=0.1).state_dict()),
    ]


def different_numbers_of_inputs():
    """Rank 0 has one batch, rank 1 two, and so on; all end with the same weights."""
    model = torch.nn.Linear(3, 4).double()
    for i, p in enumerate(model.parameters()):
        torch.nn.init.constant_(p, 0.25 + i)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = Zero(model.parameters(), torch.optim.Adam, lr=0.1)
    with Join([model, optimizer]):  # in the order in which they communicate
        for step in range(rank + 1):
            x = torch.arange(6, dtype=torch.float64).reshape(2, 3) + step + rank
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    return [round(v, 9) for p in model.parameters() for v in p.detach().flatten().tolist()]


def memory():
    """The bytes of state here, and of the whole."""
    shapes = [(40 + 3 * i,) for i in range(24)]
    params = [torch.nn.Parameter(torch.ones(s)) for s in shapes]
    zero = Zero(params, torch.optim.Adam, lr=0.1)
    for p in params:
        p.grad = torch.ones_like(p)
    zero.step()
    own = sum(v.numel() for state in zero.optim.state.values() for v in state.values())
    return own, 2 * sum(p.numel() for p in params) + len(params)


CASES = [
    same_numbers_as_one_process, groups_and_frozen_parameters, parts, resumes_the_state_of_one_process, closures,
    errors, different_numbers_of_inputs, memory,
]  # fmt: skip
if sys.argv[1] == "torch":
    CASES.remove(same_numbers_as_one_process)  # nothing to compare
print(json.dumps({case.__name__: case() for case in CASES}))
dist.barrier()
end(dist)
