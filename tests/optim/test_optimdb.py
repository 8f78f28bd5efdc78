"""Every optimizer and learning rate schedule of PyTorch's test database, against PyTorch (conformance/optimdb.py)."""

import importlib.util

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import torch

import tensorgrad as tg
from tests.conformance import __main__ as conformance
from tests.conformance import optimdb
from tests.support import schedules

PASSING = conformance.passing()


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(set(optimdb.RECORDS) - set(optimdb.EXCLUDED)))
def test_optimizer(name):
    problems = optimdb.check(name)
    assert not problems, "\n".join(problems[:8])


@pytest.mark.conformance
@pytest.mark.parametrize("name", schedules.NAMES)
def test_schedule(name):
    problems = schedules.check(name)
    assert not problems, "\n".join(problems[:8])


def test_what_is_left_out_says_so():
    for name in optimdb.EXCLUDED:
        x = tg.ones(1, requires_grad=True)
        x.sum().backward()
        with pytest.raises(RuntimeError, match=r"does not support dense gradients, please consider Adam instead"):
            getattr(tg.optim, name)([x]).step()


def test_no_record_is_lost():
    """A record that passed must not vanish from the report because its name did."""
    for section in (optimdb.optim_section(), optimdb.scheduler_section()):
        names = {f"{section.key}: {entry.name}" for entry in section.entries()}
        assert {name for name in PASSING if name.startswith(f"{section.key}: ")} <= names
        assert not [entry.name for entry in section.entries() if entry.missing]


def test_a_difference_is_found(monkeypatch):
    """The checks can fail: a rate, a state, a text and a schedule that are wrong by a little."""
    from tensorgrad.optim import adam, elementwise

    right = adam.Adam._coefficients

    def wrong(group, t):
        n = right(group, t)
        return n._replace(rate=n.rate * 1.001)

    monkeypatch.setattr(adam.Adam, "_coefficients", staticmethod(wrong))
    assert optimdb.check_steps(optimdb.RECORDS["Adam"])
    assert optimdb.check_checkpoints(optimdb.RECORDS["Adam"])
    assert optimdb.check_gradients(optimdb.RECORDS["Adam"])
    monkeypatch.undo()
    monkeypatch.setattr(elementwise, "begin", lambda state, p, starts: state.update(step=tg.zeros(())))
    assert "KeyError" in "".join(optimdb.check("Adam"))
    monkeypatch.undo()
    monkeypatch.setattr(adam, "check_settings", lambda *settings: None)
    assert optimdb.check_errors(optimdb.RECORDS["Adam"])
    cosine = tg.optim.lr_scheduler.CosineAnnealingLR
    monkeypatch.setattr(cosine, "get_lr", lambda self: [0.9 * rate for rate in self.base_lrs])
    assert schedules.check("CosineAnnealingLR")


MODULES = [
    "optimizer", "sgd", "adam", "adamw", "adadelta", "adagrad", "adamax", "asgd", "lbfgs", "nadam", "radam", "rmsprop",
    "rprop", "sparse_adam", "lr_scheduler", "swa_utils", "_adafactor", "_muon", "_stateless",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_where_torch_has_them(name):
    """With everything that PyTorch's list there; Adafactor and Muon have no function of their own."""
    mine, theirs = (importlib.import_module(f"{lib}.optim.{name}") for lib in ("tensorgrad", "torch"))
    names = set(getattr(theirs, "__all__", ())) - {"adafactor"}
    assert {n for n in names if not hasattr(mine, n)} == set()
    assert set(torch.optim.__all__) == set(tg.optim.__all__)


FUNCTIONS = {  # what a function takes a list of each, in the state's names; and settings that differ from the class's
    "adadelta": ("Adadelta", ["square_avg", "acc_delta", "step"], {}),
    "adagrad": ("Adagrad", ["sum", "step"], {}),
    "adam": ("Adam", ["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"], {"amsgrad": False}),
    "adamw": ("AdamW", ["exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"], {"amsgrad": True}),
    "adamax": ("Adamax", ["exp_avg", "exp_inf", "step"], {}),
    "asgd": ("ASGD", ["ax", "mu", "eta", "step"], {}),
    "nadam": ("NAdam", ["exp_avg", "exp_avg_sq", "mu_product", "step"], {}),
    "radam": ("RAdam", ["exp_avg", "exp_avg_sq", "step"], {}),
    "rmsprop": ("RMSprop", ["square_avg", "grad_avg", "momentum_buffer", "step"], {"centered": True, "momentum": 0.5}),
    "rprop": ("Rprop", ["prev", "step_size", "step"], {}),
    "sgd": ("SGD", ["momentum_buffer"], {"momentum": 0.9}),
}
TAKEN_APART = {
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}
NOT_TAKEN = {
    "lr": {"rprop"}, "initial_accumulator_value": {"adagrad"}, "capturable": {"adagrad", "sgd"},
    "differentiable": {"sgd"}, "decoupled_weight_decay": {"adamw"}, "params": set(FUNCTIONS),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    """The functional form makes the step of the class, here as in PyTorch."""
    class_name, kept, options = FUNCTIONS[name]
    after = []
    for lib in (tg, torch):
        params = optimdb.parameters(lib, class_name, "float64")
        twin = optimdb.Twin(lib, params, getattr(lib.optim, class_name)(params, **options))
        twin.step(0, False)
        (group,), state = twin.optimizer.param_groups, twin.optimizer.state
        settings = {k: v for k, v in group.items() if name not in NOT_TAKEN.get(k, ())}
        for pair, names in TAKEN_APART.items():
            settings.update(zip(names, settings.pop(pair, ()), strict=False))
        lists = [[state[p][key] for p in params if key in state[p]] for key in kept]
        twin.give(1)
        step = getattr(importlib.import_module(f"{lib.__name__}.optim.{name}"), name)
        with lib.no_grad():
            step(params, [p.grad for p in params], *lists, **settings)
        after.append([params, lists])
    assert optimdb.different(*after, name, 1e-9) == []
