"""Optimizers and learning rate schedules against PyTorch: ten steps of all combinations of options, and state."""

import copy
import gc
import itertools
import pickle
import re
import warnings
import weakref

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import optim
from tensorgrad.optim import lr_scheduler
from tests.support.compare import assert_close

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")

SHAPES = [(3, 4), (5,), (), (2, 0), (140_000,)]  # the last one is run in blocks


def start(lib, dtype="float64", shapes=SHAPES):
    rng = np.random.default_rng(0)
    made = []
    for shape in shapes:
        values = rng.standard_normal(shape)
        if dtype.startswith("complex"):
            values = values + 1j * rng.standard_normal(shape)
        made.append(lib.tensor(np.asarray(values)).to(getattr(lib, dtype)).requires_grad_())
    return made


def give_gradients(lib, params, step):
    """A new gradient for each parameter, the same in both libraries; the second one is left out every third step."""
    rng = np.random.default_rng(step)
    for i, p in enumerate(params):
        values = rng.standard_normal(tuple(p.shape))
        if p.dtype in (lib.complex64, lib.complex128):
            values = values + 1j * rng.standard_normal(tuple(p.shape))
        p.grad = None if i == 1 and step % 3 == 0 else lib.tensor(np.asarray(values)).to(p.dtype)


def assert_same_state(mine, theirs, tolerance=1e-12):
    """Equal state dictionaries: keys in order, settings, and tensors."""
    mine, theirs = mine.state_dict(), theirs.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    assert list(mine["state"]) == list(theirs["state"])
    for key in mine["state"]:
        assert list(mine["state"][key]) == list(theirs["state"][key])
        assert_close(mine["state"][key], theirs["state"][key], tolerance)


def combinations(**choices):
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


CASES = [
    *(
        ("SGD", {"lr": 0.1, **c})
        for c in combinations(
            momentum=(0, 0.9), dampening=(0, 0.3), weight_decay=(0, 0.1), nesterov=(False, True), maximize=(False, True)
        )
        if not (c["nesterov"] and (c["dampening"] or not c["momentum"]))
    ),
    *(
        (name, {"lr": 0.05, "betas": (0.8, 0.95), **c})
        for name in ("Adam", "AdamW")
        for c in combinations(weight_decay=(0, 0.1), amsgrad=(False, True), maximize=(False, True), eps=(1e-8, 0.1))
    ),
    *(
        ("RMSprop", {"lr": 0.05, "alpha": 0.9, **c})
        for c in combinations(weight_decay=(0, 0.1), momentum=(0, 0.9), centered=(False, True), maximize=(False, True))
    ),
    ("Adam", {}), ("AdamW", {}), ("RMSprop", {}), ("SGD", {}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "foreach": True}), ("Adam", {"fused": True}), ("RMSprop", {"foreach": False}),
]  # fmt: skip


def pair(name, options, dtype="float64", shapes=SHAPES):
    mine, theirs = start(tg, dtype, shapes), start(torch, dtype, shapes)
    return (mine, getattr(optim, name)(mine, **options)), (theirs, getattr(torch.optim, name)(theirs, **options))


@needs_torch
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_ten_steps(name, options):
    (mine, opt), (theirs, other) = pair(name, options)
    assert repr(opt) == repr(other)
    assert opt.defaults == other.defaults
    for step in range(10):
        give_gradients(tg, mine, step)
        give_gradients(torch, theirs, step)
        versions = [p._version for p in mine]
        assert opt.step() is None
        other.step()
        assert all(p._version > v for p, v in zip(mine, versions, strict=True) if p.grad is not None)
    assert_close(mine, theirs, 1e-12)
    assert_same_state(opt, other)


@needs_torch
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 3e-6), ("float16", 4e-3), ("bfloat16", 3e-2), ("complex64", 3e-6), ("complex128", 1e-12)],
)
def test_dtypes(name, dtype, tolerance):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without ml_dtypes")
    options = {"lr": 0.01, "weight_decay": 0.1}
    if name in ("SGD", "RMSprop"):
        options["momentum"] = 0.9
    if name != "SGD":
        options["eps"] = 0.1  # PyTorch rounds after every operation, and small squares are nothing in 16 bits
    (mine, opt), (theirs, other) = pair(name, options, dtype, [(3, 4), (20_000,)])
    for step in range(3 if dtype.endswith("16") else 10):
        give_gradients(tg, mine, step)
        give_gradients(torch, theirs, step)
        opt.step()
        other.step()
    assert_close(mine, theirs, tolerance)
    assert_same_state(opt, other, 10 * tolerance)  # sums that cancel: near zero, the error is that of their terms


@needs_torch
def test_layouts_and_replaced_data():
    """Transposed parameters, large and small; and data that is put in the place of a parameter's own."""
    for n in (4, 200):
        mine = tg.arange(3.0 * n).reshape(3, n).t().requires_grad_()
        theirs = torch.arange(3.0 * n).reshape(3, n).t().requires_grad_()
        opt, other = optim.Adam([mine], 0.1), torch.optim.Adam([theirs], 0.1)
        for step in range(4):
            if step == 2:
                mine.data, theirs.data = mine.data * 2, theirs.data * 2
            give_gradients(tg, [mine], step)
            give_gradients(torch, [theirs], step)
            opt.step()
            other.step()
        assert_close([mine], [theirs], 1e-5)


@needs_torch
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_groups(name):
    def build(lib):
        params = start(lib)
        opt = getattr(lib.optim, name)([{"params": params[0]}, {"params": params[1:2], "lr": 0.5}], lr=0.1)
        opt.add_param_group({"params": params[2:], "weight_decay": 0.3})
        return params, opt

    (mine, opt), (theirs, other) = build(tg), build(torch)
    assert repr(opt) == repr(other)
    for step in range(4):
        for lib, params, o in ((tg, mine, opt), (torch, theirs, other)):
            give_gradients(lib, params, step)
            o.step()
            o.param_groups[0]["lr"] *= 0.5
    assert_close(mine, theirs, 1e-12)
    assert_same_state(opt, other)


@needs_torch
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_state_dict_from_torch(name):
    """A PyTorch optimizer's state goes on here as it would there."""
    options = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"centered": True}}[name]
    (mine, opt), (theirs, other) = pair(name, {"lr": 0.1, **options})
    for step in range(3):
        give_gradients(torch, theirs, step)
        other.step()
    state = copy.deepcopy(other.state_dict())
    for kept in state["state"].values():
        for key in kept:
            kept[key] = tg.tensor(kept[key].numpy())
    for p, t in zip(mine, theirs, strict=True):
        p.data = tg.tensor(t.detach().numpy())
    opt.load_state_dict(state)
    for step in range(3, 6):
        give_gradients(tg, mine, step)
        opt.step()
        give_gradients(torch, theirs, step)
        other.step()
    assert_close(mine, theirs, 1e-12)
    assert_same_state(opt, other)


def test_state_dict_round_trip():
    def step(params, opt, n):
        give_gradients(tg, params, n)
        opt.step()

    params = start(tg, "float32", [(2, 3), (4,)])
    opt = optim.Adam(params, lr=0.1)
    for n in range(3):
        step(params, opt, n)
    for copied in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        twins, other = copied((params, opt))
        assert all(a is b for a, b in zip(other.param_groups[0]["params"], twins, strict=True))
        fresh = start(tg, "float32", [(2, 3), (4,)])
        for f, p in zip(fresh, params, strict=True):
            f.data = p.detach().clone()
        loaded = optim.Adam(fresh)
        loaded.load_state_dict(copy.deepcopy(opt.state_dict()))
        mine = copy.deepcopy((params, opt))
        for group in ((twins, other), (fresh, loaded), mine):
            step(*group, 5)
        for a, b, c in zip(twins, fresh, mine[0], strict=True):
            assert a.tolist() == b.tolist() == c.tolist()
    # state is cast to its parameter's dtype; the count of steps is not
    halves = [p.detach().half().requires_grad_() for p in params]
    loaded = optim.Adam(halves)
    loaded.load_state_dict(opt.state_dict())
    kept = loaded.state[halves[0]]
    assert (kept["exp_avg"].dtype, kept["step"].dtype) == (tg.float16, tg.float32)


@needs_torch
def test_load_state_dict_errors():
    def attempts(lib):
        ps = start(lib, "float32", [(2,), (3,)])
        opt = lib.optim.SGD(ps, lr=0.1)
        yield lambda: opt.load_state_dict(lib.optim.SGD([{"params": ps[:1]}, {"params": ps[1:]}], 0.1).state_dict())
        yield lambda: opt.load_state_dict(lib.optim.SGD(ps[:1], 0.1).state_dict())

    for mine, theirs in zip(attempts(tg), attempts(torch), strict=True):
        with pytest.raises(ValueError) as expected:
            theirs()
        with pytest.raises(ValueError, match=re.escape(str(expected.value))):
            mine()


@needs_torch
def test_constructor_errors():
    def attempts(lib):
        o = lib.optim
        p = lib.ones(2, requires_grad=True)
        for name in ("SGD", "Adam", "AdamW", "RMSprop"):
            make = getattr(o, name)
            yield lambda: make([p], lr=-1.0)
            yield lambda: make([p], weight_decay=-1.0)
            yield lambda: make(p)
            yield lambda: make([])
            yield lambda: make([3])
            yield lambda: make([{"params": {p}}])
            yield lambda: make([{"params": [p]}, {"params": [p]}])
            yield lambda: make([p * 2])
            yield lambda: make([p]).add_param_group([p])
            yield lambda: make([("a", p), lib.ones(1)])
            yield lambda: make([("a", p)]).add_param_group({"params": lib.ones(1, requires_grad=True)})
            yield lambda: make([p], lr=lib.tensor([1.0, 2.0])) if name != "RMSprop" else make([p], alpha=-1.0)
        yield lambda: o.SGD([p], momentum=-1.0)
        yield lambda: o.SGD([p], nesterov=True)
        yield lambda: o.SGD([p], fused=True, foreach=True)
        yield lambda: o.Adam([p], betas=(1.0, 0.5))
        yield lambda: o.Adam([p], betas=(0.5, -0.1))
        yield lambda: o.Adam([p], betas=(0.5, lib.tensor(0.9)))
        yield lambda: o.Adam([p], eps=-1.0)
        yield lambda: o.Adam([p], fused=True, foreach=True)
        yield lambda: o.Adam([p], lr=lib.tensor(0.1), foreach=True)
        yield lambda: o.RMSprop([p], momentum=-1.0)
        yield lambda: o.RMSprop([p], eps=-1.0)
        yield lambda: o.Optimizer([p], {}).step()

    for mine, theirs in zip(attempts(tg), attempts(torch), strict=True):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            mine()


@needs_torch
def test_named_parameters():
    def build(lib):
        lib.manual_seed(0)
        model = lib.nn.Linear(2, 1)
        return lib.optim.SGD(model.named_parameters(), lr=0.1)

    mine, theirs = build(tg), build(torch)
    assert repr(mine) == repr(theirs)
    assert mine.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]


def test_duplicates_warn():
    p = tg.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        optim.SGD([p, p], lr=0.1)


def test_tensor_learning_rate():
    for make in (optim.SGD, optim.Adam):
        a, b = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True)
        rate = tg.tensor(0.5)
        one, other = make([a], lr=rate), make([b], lr=0.5)
        for _ in range(2):
            a.grad, b.grad = tg.ones(3), tg.ones(3)
            one.step()
            other.step()
            rate.fill_(0.25)
            other.param_groups[0]["lr"] = 0.25
        assert a.tolist() == pytest.approx(b.tolist(), rel=1e-6)  # reckoned in the rate's dtype, as by PyTorch


CHANGES = {  # settings before each step: other values, other kinds of values, lists that change themselves
    "SGD": [{"lr": 0.1, "momentum": 0.5}, {"lr": 1, "maximize": 1}, {"lr": 0.2, "weight_decay": 0.1, "maximize": False},
            {"momentum": 0}, {"momentum": 0.9, "nesterov": True}],
    "Adam": [{"lr": 0.1}, {"weight_decay": 0.1}, {"betas": [0.5, 0.9]}, {"amsgrad": False, "eps": 1e-3}, {"lr": 0}],
    "RMSprop": [{"lr": 0.1}, {"alpha": 0.5}, {"lr": 0.2, "momentum": 0}, {"weight_decay": 0.1}, {"maximize": True}],
    "Rprop": [{"etas": [0.4, 1.3]}, {"etas": [0.3, 1.3]}, {"etas": [0.3, 1.5]}, {"step_sizes": [1e-3, 0.1]}],
    "ASGD": [{"t0": 0}, {"lambd": 0.1}, {"alpha": 0.5, "lr": 0.3}, {"weight_decay": 0.1}],
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_change_between_steps(name):
    """What is kept while the settings stay the same is not used for others; a list may change in place."""
    results = []
    for lib in (tg, torch):
        w = lib.tensor([[1.0, -2.0, 0.5]], requires_grad=True)
        options = {"amsgrad": True} if name == "Adam" else {}
        optimizer = getattr(lib.optim, name)([w], **options)
        (group,) = optimizer.param_groups
        for i, change in enumerate(CHANGES[name]):
            for setting, value in change.items():
                if isinstance(value, list) and isinstance(group[setting], list):
                    group[setting][:] = value
                else:
                    group[setting] = list(value) if isinstance(value, list) else value
            for _ in range(2):
                w.grad = lib.tensor([[0.5, 1.0 - i, -2.0]])
                optimizer.step()
            results.append(w.tolist())
    steps = len(CHANGES[name])
    np.testing.assert_allclose(results[:steps], results[steps:], rtol=1e-5)


def test_a_setting_that_is_not_a_number():
    """The step fails, and the next one is made with the settings it finds."""
    w = tg.ones(2, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.5)
    (group,) = optimizer.param_groups
    w.grad = tg.ones(2)
    optimizer.step()
    group["lr"], group["momentum"] = 0.25, "none"
    with pytest.raises(ValueError, match="could not convert string to float"):
        optimizer.step()
    group["lr"], group["momentum"] = 0.5, 0
    optimizer.step()
    assert w.tolist() == [0.0, 0.0]
    del group["lr"]
    with pytest.raises(KeyError, match="lr"):
        optimizer.step()


def test_parameters_that_begin_later():
    """Each has its own count of steps: those of one step of the optimizer may differ."""
    for name, options in (("Adam", {}), ("SGD", {"momentum": 0.9}), ("NAdam", {}), ("ASGD", {"t0": 1})):
        results = []
        for lib in (tg, torch):
            params = [lib.tensor([1.0, -2.0], requires_grad=True) for _ in range(3)]
            optimizer = getattr(lib.optim, name)(params, lr=0.1, **options)
            for i in range(4):
                for k, p in enumerate(params):
                    p.grad = lib.tensor([0.5 + i, -1.0]) if (i + k) % 3 else None
                optimizer.step()
            results.append([p.tolist() for p in params])
        np.testing.assert_allclose(*results, rtol=1e-5, err_msg=name)


def test_zero_grad_and_closure():
    w = tg.ones(2, requires_grad=True)
    opt = optim.SGD([w], lr=0.5)

    def closure():
        assert tg.is_grad_enabled()
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with tg.no_grad():
        assert opt.step(closure).item() == 2.0
    assert w.tolist() == [0.0, 0.0]
    grad = w.grad
    opt.zero_grad(set_to_none=False)
    assert w.grad is grad
    assert grad.tolist() == [0.0, 0.0]
    opt.zero_grad()
    assert w.grad is None


def test_a_step_between_forward_and_backward_is_noticed():
    w = tg.ones(2, requires_grad=True)
    opt = optim.SGD([w], lr=0.5)
    loss = (w * w).sum()
    w.grad = tg.ones(2)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@needs_torch
def test_step_hooks():
    def story(lib, register):
        log = []
        w = lib.ones(1, requires_grad=True)
        w.grad = lib.ones(1)
        opt = lib.optim.SGD([w], lr=1.0)
        opt.register_step_pre_hook(lambda o, args, kwargs: log.append(("pre", w.item(), args == (o,), kwargs)))
        opt.register_step_post_hook(lambda o, args, kwargs: log.append(("post", w.item())))
        handle = register(lambda o, args, kwargs: log.append("everywhere"))
        opt.step()
        handle.remove()
        opt.step()

        class Mine(lib.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.5})

            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data -= group["lr"] * p.grad
                return "done"

        own = Mine([w])
        own.register_step_pre_hook(lambda o, args, kwargs: ((o, None), {}))
        own.register_step_post_hook(lambda o, args, kwargs: log.append((type(o).__name__, args[1:], w.item())))
        log.append(own.step())
        own.register_step_pre_hook(lambda o, args, kwargs: 3)
        with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\), but got 3"):
            own.step()
        log.append(repr(own))
        return log

    from torch.optim.optimizer import register_optimizer_step_pre_hook as theirs

    from tensorgrad.optim.optimizer import register_optimizer_step_pre_hook as mine

    assert story(tg, mine) == story(torch, theirs)


def test_state_dict_hooks():
    w, log = tg.ones(1, requires_grad=True), []
    opt = optim.SGD([w], lr=1.0)
    opt.register_state_dict_pre_hook(lambda o: log.append("save"))
    opt.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    opt.register_load_state_dict_pre_hook(lambda o, state: log.append(state.pop("more")))
    opt.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    state = opt.state_dict()
    opt.load_state_dict(state)
    assert log == ["save", 1, "loaded"]
    assert state["more"] == 1  # what the caller holds is not changed


def test_optimizers_are_freed_by_reference_counting():
    gc.collect()
    gc.disable()
    try:
        w = tg.ones(3, requires_grad=True)
        opt = optim.Adam([w])
        schedule = lr_scheduler.StepLR(opt, 1)
        w.grad = tg.ones(3)
        opt.step()
        schedule.step()
        dead = [weakref.ref(opt), weakref.ref(w), weakref.ref(schedule)]
        del opt, w, schedule
        assert [ref() for ref in dead] == [None] * 3
    finally:
        gc.enable()


# --- schedules -------------------------------------------------------------------------------------------------------

SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "multi step": lambda s, o: s.MultiStepLR(o, [2, 5, 5], gamma=0.3),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 6),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "polynomial": lambda s, o: s.PolynomialLR(o, 8, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, 0.01),
    "warm restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "lambda": lambda s, o: s.LambdaLR(o, lambda n: 0.9**n),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.7),
    "one cycle": lambda s, o: s.OneCycleLR(o, 1.5, total_steps=20),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(
        o, [1.5, 0.5], epochs=4, steps_per_epoch=5, anneal_strategy="linear", three_phase=True
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], [4, 9]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 3), s.ExponentialLR(o, 0.9)]),
}


def optimizer(lib, name="SGD"):
    params = [lib.ones(1, requires_grad=True) for _ in range(2)]
    options = {"lr": 0.4, **({"momentum": 0.9} if name == "SGD" else {})}
    return getattr(lib.optim, name)([{"params": params[:1]}, {"params": params[1:], "lr": 0.2}], **options)


def settings(opt):
    return [v for g in opt.param_groups for k, v in sorted(g.items()) if k in ("lr", "momentum", "betas", "initial_lr")]


def flat(values):
    return [x for v in values for x in (v if isinstance(v, tuple | list) else [v])]


@needs_torch
@pytest.mark.parametrize("build", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_schedule(build, name):
    mine, theirs = optimizer(tg, name), optimizer(torch, name)
    schedule, other = build(lr_scheduler, mine), build(torch.optim.lr_scheduler, theirs)
    for i in range(18):
        assert flat(settings(mine)) == pytest.approx(flat(settings(theirs)), rel=1e-12, abs=1e-15), i
        assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
        for o, s in ((mine, schedule), (theirs, other)):
            o.step()
            s.step()
    saved = schedule.state_dict()
    assert sorted(saved) == sorted(
        k for k in other.state_dict() if k not in ("_get_lr_called_within_step", "_is_initial")
    ) or set(saved) >= {"_last_lr"}
    again = optimizer(tg, name)
    fresh = build(lr_scheduler, again)
    again.load_state_dict(mine.state_dict())
    fresh.load_state_dict(saved)
    for o, s in ((again, fresh), (mine, schedule)):
        o.step()
        s.step()
    assert settings(again) == settings(mine)


@needs_torch
@pytest.mark.parametrize("options", [
    {}, {"mode": "max", "patience": 1}, {"threshold_mode": "abs", "threshold": 0.3, "patience": 2, "factor": 0.5},
    {"cooldown": 2, "patience": 0, "min_lr": [0.1, 0.01]},
    {"mode": "max", "threshold_mode": "abs", "patience": 0, "eps": 0.1},
], ids=str)  # fmt: skip
def test_reduce_on_plateau(options):
    values = np.random.default_rng(0).standard_normal(40).tolist()
    mine, theirs = optimizer(tg), optimizer(torch)
    schedule = lr_scheduler.ReduceLROnPlateau(mine, **options)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for value in values:
        schedule.step(value)
        other.step(torch.tensor(value, dtype=torch.float64))
        assert schedule.get_last_lr() == other.get_last_lr()
        assert (schedule.best, schedule.num_bad_epochs, schedule.in_cooldown) == (
            other.best, other.num_bad_epochs, other.in_cooldown
        )  # fmt: skip


@needs_torch
@pytest.mark.parametrize(
    "name", ["step", "multi step", "linear", "exponential", "polynomial", "cosine", "constant", "lambda"]
)
def test_jump_to_an_epoch(name):
    mine, theirs = optimizer(tg), optimizer(torch)
    schedule, other = SCHEDULES[name](lr_scheduler, mine), SCHEDULES[name](torch.optim.lr_scheduler, theirs)
    mine.step()
    theirs.step()
    for s in (schedule, other):
        with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
            s.step(6)
    assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12)


def test_resuming():
    opt = optimizer(tg)
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified in param_groups"):
        lr_scheduler.StepLR(opt, 2, last_epoch=3)
    for group in opt.param_groups:
        group["initial_lr"] = group["lr"]
    assert lr_scheduler.ExponentialLR(opt, 0.5, last_epoch=3).last_epoch == 4


def test_schedule_warnings():
    opt = optimizer(tg)
    schedule = lr_scheduler.StepLR(opt, 2)
    with pytest.warns(UserWarning, match="Detected call of `lr_scheduler.step.* before `optimizer.step"):
        schedule.step()
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        schedule.get_lr()
    opt = optimizer(tg)
    schedule = lr_scheduler.StepLR(opt, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.step()
        schedule.step()


@needs_torch
def test_schedule_errors():
    def attempts(lib):
        s, o = lib.optim.lr_scheduler, optimizer(lib)
        yield lambda: s.StepLR(3, 2)
        yield lambda: s.LambdaLR(o, [abs])
        yield lambda: s.MultiplicativeLR(o, 3)
        yield lambda: s.ConstantLR(o, 2.0)
        yield lambda: s.LinearLR(o, 0.0)
        yield lambda: s.LinearLR(o, 0.5, 2.0)
        yield lambda: s.CosineAnnealingWarmRestarts(o, 0)
        yield lambda: s.CosineAnnealingWarmRestarts(o, 2, 0)
        yield lambda: s.SequentialLR(o, [], [])
        yield lambda: s.SequentialLR(o, [s.StepLR(o, 2)], [2])
        yield lambda: s.ChainedScheduler([s.ReduceLROnPlateau(o)])
        yield lambda: s.ChainedScheduler([])
        yield lambda: s.ReduceLROnPlateau(o, mode="x")
        yield lambda: s.ReduceLROnPlateau(o, threshold_mode="x")
        yield lambda: s.ReduceLROnPlateau(o, factor=1.0)
        yield lambda: s.ReduceLROnPlateau(o, min_lr=[1])
        yield lambda: s.OneCycleLR(o, 1.0)
        yield lambda: s.OneCycleLR(o, 1.0, total_steps=0)
        yield lambda: s.OneCycleLR(o, 1.0, epochs=2, steps_per_epoch=-1)
        yield lambda: s.OneCycleLR(o, 1.0, 5, pct_start=2.0)
        yield lambda: s.OneCycleLR(o, 1.0, 5, anneal_strategy="x")
        yield lambda: s.OneCycleLR(o, [1.0], 5)

    for mine, theirs in zip(attempts(tg), attempts(torch), strict=True):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            mine()
