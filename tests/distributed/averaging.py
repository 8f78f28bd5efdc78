"""What every rank runs for `test_averaging.py`: prints the weights after training with averaged parameters.

The argument is the package (`torch` or `tensorgrad`).
"""

import importlib
import sys
import warnings

import numpy as np

from tests.distributed.ending import end

lib = importlib.import_module(sys.argv[1])
name = sys.argv[1] + ".distributed"
dist = importlib.import_module(name)
hook = importlib.import_module(name + ".algorithms.ddp_comm_hooks.post_localSGD_hook")
averagers = importlib.import_module(name + ".algorithms.model_averaging.averagers")
levels = importlib.import_module(name + ".algorithms.model_averaging.hierarchical_model_averager")
PostLocalSGDOptimizer = importlib.import_module(name + ".optim").PostLocalSGDOptimizer
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mine, _ = dist.new_subgroups(group_size=1)

AVERAGERS = {
    "every third": lambda: averagers.PeriodicModelAverager(3),
    "later": lambda: averagers.PeriodicModelAverager(2, warmup_steps=4),
    "levels": lambda: levels.HierarchicalModelAverager({2: 1, 4: 2}, warmup_steps=1),
}


def train(make_averager, gradients):
    values = np.random.RandomState(3)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2)).double()
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(values.randn(*parameter.shape)))
    parallel = lib.nn.parallel.DistributedDataParallel(model)
    state = hook.PostLocalSGDState(None, mine, 3, post_local_gradient_allreduce=gradients)
    parallel.register_comm_hook(state, hook.post_localSGD_hook)
    inner = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer, found = PostLocalSGDOptimizer(inner, make_averager()), []
    for _ in range(9):
        x = lib.tensor(values.randn(size, 5, 3)[rank])
        optimizer.zero_grad()
        parallel(x).square().mean().backward()
        optimizer.step()
        found.append(sum(p.detach().sum().item() for p in model.parameters()))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        again = PostLocalSGDOptimizer(inner, averagers.PeriodicModelAverager(7))
        again.load_state_dict(optimizer.state_dict())
        steps = [again.averager.step]
        again.load_state_dict(inner.state_dict())
        steps.append(again.averager.step)
    return [round(value, 9) for value in found], steps, [str(w.message) for w in warned], state.iter


def told(function):
    try:
        return function()
    except (ValueError, NotImplementedError) as error:
        return type(error).__name__, str(error).replace("tensorgrad.", "torch.")


for case in AVERAGERS:
    print(case, train(AVERAGERS[case], True), train(AVERAGERS[case], False))
print(told(lambda: averagers.PeriodicModelAverager(0)))
print(told(lambda: averagers.PeriodicModelAverager(2, warmup_steps=-1)))
print(told(lambda: levels.HierarchicalModelAverager({})))
print(told(lambda: levels.HierarchicalModelAverager({0: 1, 4: 2})))
print(told(lambda: levels.HierarchicalModelAverager({2: 1})))
print(told(lambda: averagers.PeriodicModelAverager(2).average_parameters([3])))
end(dist)
