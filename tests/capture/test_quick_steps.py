"""Steps of optimizers in plans (capture/quick_steps.py): the bits of `step`, whatever its settings and state become."""

import copy
import random
import threading

import pytest

import tensorgrad as torch
from tensorgrad.capture import quick_steps
from tests.capture.compare import bits
from tests.capture.test_chains import Training, plan_of, settled, usable
from tests.support import threads as support

pytestmark = pytest.mark.skipif(not usable(), reason="needs the compiled kernels")


def is_quick(region):
    (launch,) = (found for found in plan_of(region).launches.launches if found.name.startswith("optimizer_step"))
    return launch.function is not None


def _hook(optimizer, args, kwargs):
    """Halves the first parameter before a step."""
    with torch.no_grad():
        optimizer.param_groups[0]["params"][0].mul_(0.5)


CHANGES = {
    "lr": lambda o, r: o.param_groups[0].update(lr=r.choice([0.1, 0.05, 0])),
    "momentum": lambda o, r: o.param_groups[0].update(momentum=r.choice([0, 0.9])),
    "decay": lambda o, r: o.param_groups[-1].update(weight_decay=r.choice([0, 0.01])),
    "maximize": lambda o, r: o.param_groups[0].update(maximize=r.choice([True, False])),
    "dampening": lambda o, r: o.param_groups[0].update(dampening=r.choice([0, 0.5])),
    "another entry": lambda o, r: o.param_groups[0].update(initial_lr=r.choice([0.1, 0.2])),
    "a tensor": lambda o, r: o.param_groups[0].update(lr=torch.tensor(r.choice([0.1, 0.2]))),
    "state_dict": lambda o, r: o.load_state_dict(copy.deepcopy(o.state_dict())),
    "state": lambda o, r: o.state.clear(),
    "a buffer": lambda o, r: [s.pop("momentum_buffer", None) for s in [*o.state.values()][:1]],
    "values of a buffer": lambda o, r: [s["momentum_buffer"].mul_(0.5) for s in o.state.values() if s],
    "a new buffer": lambda o, r: [s.update(momentum_buffer=t.momentum_buffer * 2) for s in o.state.values()
                                  for t in [type("", (), s)] if s],
    "a buffer of another layout": lambda o, r: [
        s.update(momentum_buffer=torch.stack([s["momentum_buffer"]] * 2, -1)[..., 0]) for s in o.state.values() if s
    ],
    "data of a buffer": lambda o, r: [
        setattr(s["momentum_buffer"], "data", s["momentum_buffer"] * 2) for s in o.state.values() if s
    ],
    "data of a parameter": lambda o, r: [setattr(p, "data", p.data * 0.5) for p in o.param_groups[0]["params"][:1]],
    "a parameter of another layout": lambda o, r: [
        setattr(p, "data", torch.stack([p.data] * 2, -1)[..., 0]) for p in o.param_groups[0]["params"][:1]
    ],
    "memory of a parameter": lambda o, r: [p.data.set_(p.data * 0.5) for p in o.param_groups[0]["params"][:1]],
    "values of a parameter": lambda o, r: [p.data.mul_(0.5) for p in o.param_groups[0]["params"]],
    "a frozen parameter": lambda o, r: o.param_groups[-1]["params"][-1].requires_grad_(r.choice([True, False])),
    "gradients stay": lambda o, r: setattr(o, "zero_grad", lambda *given: None),
    "no gradients stay": lambda o, r: vars(o).pop("zero_grad", None),
    "zero_grad": lambda o, r: o.zero_grad(),
    "a hook": lambda o, r: o.register_step_pre_hook(_hook),
    "no hooks": lambda o, r: o._optimizer_step_pre_hooks.clear(),
    "a step": lambda o, r: setattr(o, "step", lambda: type(o).step(o) or type(o).step(o)),
    "no step": lambda o, r: vars(o).pop("step", None),
    "copied groups": lambda o, r: setattr(o, "param_groups", [dict(g) for g in o.param_groups]),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["plain", "momentum", "groups"])
def test_no_quick_step_is_older_than_its_optimizer(kind, seed):
    rng = random.Random(seed)
    made = [Training(momentum=0.9 if kind == "momentum" else 0) for _ in range(2)]
    if kind == "groups":
        for one in made:
            first, *rest = one.model.parameters()
            groups = [{"params": [first], "momentum": 0.8, "nesterov": True}, {"params": rest, "weight_decay": 0.01}]
            one.optimizer = torch.optim.SGD(groups, lr=0.1)
    region = settled(made[0].step)
    assert is_quick(region)
    for _ in range(6):
        made[1].step()
    region.limit = 10**6
    for turn in range(60):
        chosen, choice = rng.sample([*CHANGES], 1) if rng.random() < 0.3 else (), rng.randrange(2**30)
        for one in made:
            for name in chosen:
                CHANGES[name](one.optimizer, random.Random(choice))
        found = [bits(step()) for step in (region, made[1].step)]
        states = [[bits(dict(s)) for s in one.optimizer.state.values()] for one in made]
        assert found[0] == found[1] and made[0].after() == made[1].after() and states[0] == states[1], (turn, chosen)


class Mixed:
    """Steps of parameters of several dtypes and layouts, some with the same gradient."""

    def __init__(self, dtypes, sizes, **settings):
        torch.manual_seed(0)
        drawn = [torch.randn(size, 2, dtype=dtype) for size, dtype in zip(sizes, dtypes)]
        self.params = [(p if n % 2 else p.t().contiguous().t()).requires_grad_() for n, p in enumerate(drawn)]
        self.params += [torch.randn(7, requires_grad=True) for _ in range(3)]
        self.optimizer = torch.optim.SGD(self.params, lr=0.1, **settings)

    def step(self):
        self.optimizer.zero_grad()
        loss = sum((p * p).sum().float() for p in self.params[:-3])
        loss = loss + (self.params[-1] + self.params[-2] - self.params[-3]).pow(2).sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def after(self):
        return bits([self.params, [p.grad for p in self.params]])


@pytest.fixture(params=[1, 2])
def threads(request):
    with support.threads(torch, request.param):
        yield request.param


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1, "maximize": True}])
@pytest.mark.parametrize(
    "dtypes, sizes",
    [
        ("float32 float32", (3, 5)), ("float32 float64", (5, 70_000)), ("float64", (70_000,)),
        ("float16 float32 bfloat16", (4, 0, 3)), ("float32 complex64", (70_000, 3)),
        ("float32 float32", (150_000, 150_000)),
    ],
)  # fmt: skip
def test_parameters_that_no_launch_takes(dtypes, sizes, settings, threads):
    dtypes = [getattr(torch, name) for name in dtypes.split()]
    dtypes = [torch.float32 if d.is_complex and settings.get("maximize") else d for d in dtypes]
    one, same = (Mixed(dtypes, sizes, **settings) for _ in range(2))
    region = settled(one.step)
    assert is_quick(region)
    for _ in range(6):
        same.step()
    for _ in range(4):
        assert [bits(region()), one.after()] == [bits(same.step()), same.after()]


def test_a_step_is_quick_again_once_its_settings_stay(monkeypatch):
    one = Training(momentum=0.9)
    region = settled(one.step)
    steps = []
    before = type(one.optimizer)._step_group
    monkeypatch.setattr(quick_steps.Elementwise, "_step_group", lambda *given: (steps.append(1), before(*given))[1])
    region()
    assert not steps
    one.optimizer.param_groups[0]["lr"] = 0.05
    for expected in (1, 2, 2, 2):
        region()
        assert len(steps) == expected
    assert region.plans == 1


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_optimizers_that_count_their_steps_keep_them(optimizer):
    one, same = Training(optimizer=optimizer), Training(optimizer=optimizer)
    region = settled(one.step)
    assert not is_quick(region)
    for _ in range(6):
        same.step()
    assert [bits(region()), one.after()] == [bits(same.step()), same.after()]


def test_large_parameters_are_moved_by_all_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one, same = (Training(sizes=(600, 800, 10), batch=8, momentum=0.9) for _ in range(2))
        region = settled(one.step)
        for _ in range(6):
            same.step()
        for _ in range(5):
            assert [bits(region()), one.after()] == [bits(same.step()), same.after()]
        assert is_quick(region)
    finally:
        torch.set_num_threads(before)


def test_regions_of_several_threads_step_at_a_time():
    made = [Training(seed=seed) for seed in range(4)]
    regions = [settled(one.step) for one in made]
    threads = [threading.Thread(target=lambda region=region: [region() for _ in range(200)]) for region in regions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, one in enumerate(made):
        same = Training(seed=seed)
        for _ in range(206):
            same.step()
        assert one.after() == same.after()
