"""Compiled forward passes that are differentiated outside: bits, graphs and errors are those of the program."""

import copy
import gc
import random
import re
import warnings
import weakref

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture import record
from tensorgrad.capture.region import Region
from tensorgrad.capture.running import RUNNING, PlanError
from tensorgrad.capture.values import tensors
from tests.capture.compare import bits
from tests.capture.test_modules import MODULES
from tests.capture.test_programs import PROGRAMS
from tests.capture.test_regions import MUTATIONS, World

F = nn.functional


def history_of(region):
    """The history of the only plan of a region."""
    (history,) = [plan.history for kind in region.kinds.values() for _, plan in kind.plans]
    return history


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_loops(name, checked, monkeypatch):
    """Some steps clear the gradients and some add to them; some are of another mode; the tail has the backward pass."""
    monkeypatch.setattr(RUNNING, "check", checked)
    make, x, y = PROGRAMS[name][:3]
    found = []
    for compiled in (False, True):
        torch.manual_seed(1)
        model = make()
        region = Region(model)
        run = region if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(2)
        steps = []
        for turn in range(14):
            model.train(turn % 7 != 6)
            if turn % 3:
                optimizer.zero_grad()
            out = run(x())
            loss = F.cross_entropy(out, y())
            loss.backward()
            if turn % 2:
                optimizer.step()
            steps.append(bits([out, loss, model.state_dict(), [p.grad for p in model.parameters()]]))
            steps.append([p._version for p in model.parameters()])
        found.append((steps, torch.get_rng_state().tolist()))
    assert found[0] == found[1]
    assert region.plans >= 1, region.explain()
    plan = next(plan for kind in region.kinds.values() for _, plan in kind.plans)
    assert plan.history.backward_plans and all(plan.history.backward_plans.values())


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_is_older_than_its_program(seed):
    """As in test_regions.py, with the backward pass and the optimizer outside of the region."""
    rng = random.Random(seed)
    worlds = plain, other = World(), World()
    region = Region(other.model, limit=10**6)
    state = torch.get_rng_state()
    for turn in range(60):
        chosen, choice = [], rng.randrange(2**30)
        if turn > 5 and rng.random() < 0.3:
            chosen = [rng.randrange(len(MUTATIONS)) for _ in range(rng.choice([1, 1, 2]))]
        rows, clear, part = rng.choice([4, 4, 4, 2]), rng.random() < 0.6, rng.random() < 0.2
        x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(turn))
        found = []
        for world, forward in zip(worlds, (plain.model, region), strict=True):
            torch.set_rng_state(state)
            for c in chosen:
                MUTATIONS[c](world, random.Random(choice))
            if clear:
                world.optimizer.zero_grad()
            out = forward(x)
            loss = F.cross_entropy(out[:1] if part else out, (torch.arange(rows) % 2)[: 1 if part else rows])
            loss.backward()
            world.optimizer.step()
            found.append((bits([out, loss]), world.after()))
        state = torch.get_rng_state()
        assert found[0] == found[1], (turn, chosen)
    assert region.plans > 1, region.explain()


class Two(nn.Module):
    """Two results that share a part, one that does not depend on parameters, and one that is not differentiable."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x).tanh()
        a = self.a(h)
        b = (self.b(h) + a).exp()
        return {"a": a.view(-1, 2), "b": b, "scaled": x * 2, "best": a.argmax(-1)}


def _loss(out):
    return (out["a"] * out["a"]).sum() + out["b"].sum()


def _twice(model, run, x):
    loss = _loss(run(x))
    loss.backward(retain_graph=True)
    loss.backward()
    loss.backward()


def _parts(model, run, x):
    """Each result on its own: they share a part, so the second time is an error."""
    out = run(x)
    out["b"].sum().backward(retain_graph=True)
    out["a"].sum().backward()
    out["b"].sum().backward()


def _only_one(model, run, x):
    run(x)["a"].sum().backward()


def _nothing(model, run, x):
    return run(x)


def _write_to_a_parameter(model, run, x):
    loss = _loss(run(x))
    with torch.no_grad():
        model.a.weight.mul_(2)
    loss.backward()


def _write_to_what_is_not_needed(model, run, x):
    out = run(x)
    with torch.no_grad():
        model.b.weight.mul_(2)
    out["a"].sum().backward()


def _write_to_the_input(model, run, x):
    out = run(x)
    x.add_(1)
    out["b"].sum().backward()


def _write_to_a_result(model, run, x):
    out = run(x)
    out["b"].mul_(2)
    return out["b"].sum().backward()


def _write_to_a_view(model, run, x):
    out = run(x)
    out["a"].mul_(2)
    out["a"][0] = 0
    _loss({"a": out["a"], "b": out["a"]}).backward()
    return out["a"]


def _second_derivative(model, run, x):
    x.requires_grad_()
    out = run(x)
    (grad,) = torch.autograd.grad(_loss(out), x, create_graph=True)
    (_loss(out) + (grad * grad).sum()).backward()
    return grad, x.grad


def _certain_gradients(model, run, x):
    out = run(x)
    first = torch.autograd.grad(_loss(out), [model.a.weight], retain_graph=True)
    second = torch.autograd.grad(out["a"].sum(), [model.first.bias, model.b.bias], retain_graph=True, allow_unused=True)
    _loss(out).backward(inputs=[model.b.weight, model.first.weight])
    return [*first, *[g for g in second if g is not None], len(second)]


def _of_a_result(model, run, x):
    out = run(x)
    return torch.autograd.grad(_loss(out), [out["a"], out["b"], model.first.weight])


def _hooks(model, run, x):
    seen = []
    handles = [
        model.first.weight.register_hook(lambda g: seen.append(("grad", g.clone())) or g * 2),
        model.b.bias.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.clone()))),
    ]
    out = run(x)
    out["b"].register_hook(lambda g: seen.append(("result", g.clone())) or g + 1)
    out["a"].retain_grad()
    _loss(out).backward()
    out = run(x)
    out["a"].sum().backward()  # the hooks of `first` run, and none of `b`
    for handle in handles:
        handle.remove()
    return seen


def _anomaly(model, run, x):
    loss = _loss(run(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            loss.backward()


def _profiled(model, run, x):
    out = run(x)
    with torch.profiler.profile():
        _loss(out).backward()


def _autocast_around_backward(model, run, x):
    loss = _loss(run(x))
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()


def _batched(model, run, x):
    out = run(x)["a"]
    return torch.autograd.grad(out, model.a.weight, torch.ones(3, *out.shape), is_grads_batched=True)


def _recorded(model, run, x):
    loss = _loss(run(x))
    return record(loss.backward).result


def _drawn(model, run, x):
    loss = _loss(run(x))
    assert "<svg" in loss.render()._repr_svg_() and "<svg" in loss.render("backward")._repr_svg_()


def _gradients_of_other_layouts(model, run, x):
    out = run(x)
    out["b"].t().contiguous().t().backward(torch.rand(4, 2).t(), retain_graph=True)
    out["b"].backward(torch.ones(()).expand(2, 4), retain_graph=True)
    out["b"][:, ::2].sum().backward()


def _input_with_a_history(model, run, x):
    w = torch.full((3,), 0.5, requires_grad=True)
    out = run(x * w)
    (_loss(out) + out["scaled"].sum()).backward()
    return w.grad


def _input_used_outside_too(model, run, x):
    x.requires_grad_()
    (_loss(run(x)) + (x * x).sum() + _loss(run(x))).backward()
    return x.grad


def _within_another_graph(model, run, x):
    for _ in range(2):
        h = model.first(x)
        (_loss(run(h[:, :3])) + F.linear(h, model.a.weight).sum() + _loss(run(x))).backward()


def _copies(model, run, x):
    out = run(x)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(out["b"])
    return out["b"].detach()


def _frozen(model, run, x):
    model.first.requires_grad_(False)
    for _ in range(6):
        _loss(run(x)).backward()
    model.first.requires_grad_(True)
    _loss(run(x)).backward()


def _without_grad(model, run, x):
    with torch.no_grad():
        first = run(x)
    _loss(run(x)).backward()
    with torch.inference_mode():
        return first, run(x)


def _replaced(model, run, x):
    _loss(run(x)).backward()
    model.a.weight = nn.Parameter(model.a.weight.detach() * 2)
    for _ in range(5):
        _loss(run(x)).backward()


def _hook_on_the_node(model, run, x):
    seen = []
    out = run(x)
    out["b"].grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
    out["b"].sum().backward()
    return bool(seen)


SCENARIOS = [
    _twice, _parts, _only_one, _nothing, _write_to_a_parameter, _write_to_what_is_not_needed, _write_to_the_input,
    _write_to_a_result, _write_to_a_view, _second_derivative, _certain_gradients, _of_a_result, _hooks, _anomaly,
    _profiled, _autocast_around_backward, _batched, _recorded, _drawn, _gradients_of_other_layouts,
    _input_with_a_history, _input_used_outside_too, _within_another_graph, _copies, _frozen, _without_grad, _replaced,
    _hook_on_the_node,
]  # fmt: skip


def _played(scenario, compiled, times):
    """What a scenario gives, several times in one world: results, gradients, parameters, and errors in words."""
    torch.manual_seed(3)
    model = Two()
    region = Region(model)
    found = []
    for i in range(times):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(i))
        if i < times - 7:  # until there is a plan
            _loss((region if compiled else model)(x)).backward()
            continue
        try:
            given = bits(scenario(model, region if compiled else model, x))
        except RuntimeError as error:
            given = re.sub(r"version \d+", "version", str(error))
        state = [model.state_dict(), [p.grad for p in model.parameters()]]
        found.append((given, bits(state)))
    return found, region


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__.strip("_"))
def test_what_a_program_can_do_with_results(scenario):
    expected, _ = _played(scenario, False, 12)
    found, region = _played(scenario, True, 12)
    assert found == expected
    assert region.plans >= 1, region.explain()
    assert "eager:" not in region.explain()


def test_two_results_that_share_nothing_have_passes_of_their_own():
    v, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    region, expected = Region(lambda x: ((x * v).exp(), (x * w).tanh())), torch.tensor(0.0)
    for _ in range(7):
        first, second = region(torch.ones(2))
        first.sum().backward()
        second.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            first.sum().backward()
        expected = expected + torch.tensor(1.0).exp()
        assert v.grad.tolist() == [expected.item()] * 2
    assert region.plans == 1


def test_gradients_are_added_one_by_one():
    """1 + 2**-24 + 2**-24 is not 1 + 2**-23: a leaf adds in the order of the program."""
    w = torch.ones(1, requires_grad=True)
    region = Region(lambda x: w * x + w * x)
    for _ in range(8):
        w.grad = torch.ones(1)
        region(torch.full((1,), 2.0**-24)).sum().backward()
        assert w.grad.item() == 1
    assert region.plans == 1


def test_gradients_do_not_share_memory():
    """Two leaves of a sum receive the same gradient."""
    v, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    region = Region(lambda x: (v + w) + x)
    for _ in range(7):
        v.grad = w.grad = None
        cotangent = torch.ones(2)
        region(torch.ones(2)).backward(cotangent)
        v.grad.mul_(3)
        assert w.grad.tolist() == cotangent.tolist() == [1, 1]
    assert region.plans == 1


def test_what_was_kept_is_let_go():
    """A backward pass frees what the run kept, as it frees what nodes saved."""
    w = torch.ones(3, requires_grad=True)
    region = Region(lambda x: (w * x).exp())
    for _ in range(6):
        out = region(torch.ones(3))
        node = out.grad_fn
        kept = list(node.args[0].arrays) if node.name() == "CompiledFunctionBackward" else None
        out.sum().backward()
    assert len(kept) == 2 and all(a is None for a in node.args[0].arrays)


def test_a_backend_of_the_users_computes_no_gradients():
    w = torch.ones(2, requires_grad=True)
    region = Region(lambda x: x * w, backend=lambda module, inputs: module.forward)
    for _ in range(6):
        region(torch.ones(2)).sum().backward()
    assert w.grad.tolist() == [6, 6] and region.plans == 0 and "a backend computes no gradients" in region.explain()
    with torch.no_grad():
        for _ in range(6):
            region(torch.ones(2))
    assert region.plans == 1


def test_no_call_is_remembered():
    """Plans are made of what was recorded, and hold nothing of the results; no cycle holds them either."""
    model = Two()
    region = Region(model)
    gc.disable()
    try:
        for turn in range(8):
            out = region(torch.ones(2, 3))
            ends = [weakref.ref(t) for t in (*out.values(), *[t.grad_fn for t in out.values() if t.requires_grad])]
            if turn % 2:
                _loss(out).backward()
            elif turn % 4:
                torch.autograd.grad(_loss(out), model.a.weight, create_graph=True)
            del out
            assert not any(reference() for reference in ends), turn
    finally:
        gc.enable()
    assert region.plans == 1


REFUSED = {
    "a view of an argument": (lambda w: lambda x: (x.view(-1), x * w), "view"),
    "a custom function": (lambda w: lambda x: Double.apply(x * w), "Double"),
    "a checkpoint": (lambda w: lambda x: torch.utils.checkpoint.checkpoint(lambda y: y * w, x, use_reentrant=False),
                     "checkpoint"),
    "a new leaf": (lambda w: lambda x: torch.zeros(2).requires_grad_() * w * x, "made"),
}  # fmt: skip


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_eager_says_why(name):
    make, reason = REFUSED[name]
    w = torch.ones(2, requires_grad=True)
    region = Region(make(w))
    for i in range(8):
        out = region(torch.ones(2))
        (out[1] if isinstance(out, tuple) else out).sum().backward()
        assert "leaf" in name or w.grad.tolist() in ([i + 1] * 2, [2 * i + 2] * 2, [0] * 2)
    assert region.plans == 0 and reason in region.explain(), region.explain()


def test_a_wrong_backward_plan_is_found(monkeypatch):
    monkeypatch.setattr(RUNNING, "check", True)
    w = torch.ones(2, requires_grad=True)
    region = Region(lambda x: w * x)
    for _ in range(6):
        region(torch.ones(2)).sum().backward()
    (plan,) = history_of(region).backward_plans.values()
    ran = plan._run
    monkeypatch.setattr(plan, "_run", lambda arrays, grads: [g * 2 for g in ran(arrays, grads)])
    with pytest.raises(PlanError, match="gradient 0"):
        region(torch.ones(2)).sum().backward()


# What has no plan: it reads values (a count, a variance, the smallest class), so its numbers differ each time.
WITHOUT_A_PLAN = {"RReLU": "", "BatchNorm2d": "", "GaussianNLLLoss": "reads", "MultiMarginLoss": "reads"}


@pytest.mark.parametrize("name", MODULES)
def test_modules_with_gradients_of_their_inputs(name):
    make, *inputs = MODULES[name]
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = make()
        region = Region(module)
        values = []
        for turn in range(6):
            args = [make() for make in inputs]
            args = [t.requires_grad_() if t.is_floating_point() else t for t in args]
            result = (region if compiled else module)(*args)
            outs = [t for t in tensors(result) if t.requires_grad]
            if outs:
                generator = torch.Generator().manual_seed(turn)
                torch.autograd.backward(outs, [torch.randn(t.shape, generator=generator) for t in outs])
            values.append(bits([result, module.state_dict(), [p.grad for p in (*module.parameters(), *args)]]))
        found.append((values, torch.get_rng_state().tolist()))
    assert found[0] == found[1]
    (kind,) = region.kinds.values()
    assert WITHOUT_A_PLAN.get(name, "") in region.explain()
    assert (region.plans == 1) is (name not in WITHOUT_A_PLAN), region.explain()
    for _, plan in kind.plans:
        assert plan.history is None or all(plan.history.backward_plans.values()), "no plan for the backward pass"


def test_explain_shows_both_passes():
    w = torch.ones(2, 2, requires_grad=True)
    region = Region(lambda x: F.linear(x, w).relu())
    for _ in range(5):
        region(torch.ones(2, 2)).sum().backward()
    text = region.explain()
    assert "2 launches" in text and "keeps 2 arrays for the backward pass" in text, text
    assert "a backward pass of 2 launches" in text and "linear_backward" in text


class _SomeOf(torch.autograd.Function):
    """Passes two tensors on, and one gradient, or none, back."""

    @staticmethod
    def forward(ctx, kept, a, b):
        ctx.kept = kept
        return a.clone(), b.clone()

    @staticmethod
    def backward(ctx, *grads):
        return (None, *[g if k in ctx.kept else None for k, g in enumerate(grads)])


@pytest.mark.parametrize("kept", [(0, 1), (0,), (1,), ()])
def test_what_is_behind_a_result_is_visited_without_a_gradient(kept):
    """So hooks of leaves are called, as they are by the nodes of the program, and saved values are used up."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, seen = Two(), []
        region = Region(model)
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, bits([p.grad]))))
        for _ in range(7):
            out = (region if compiled else model)(torch.ones(2, 3))
            a, b = _SomeOf.apply(kept, out["a"], out["b"])
            (a.sum() + b.sum()).backward(retain_graph=True)
            seen.append("again")
            (a.sum() + b.sum()).backward()
            with pytest.raises(RuntimeError) as error:
                out["a"].sum().backward()
            seen.append(str(error.value))
        found.append(seen)
        assert not compiled or region.plans == 1, region.explain()
    assert found[0] == found[1]
