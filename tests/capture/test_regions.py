"""`torch.compile`: regions give the bits that their programs give, whatever changes between calls."""

import collections
import copy
import gc
import os
import pickle
import random
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.compiled import OptimizedModule, region_of
from tensorgrad.capture.region import GraphBreak, Region
from tensorgrad.capture.state import State
from tensorgrad.capture.watch import Watch
from tensorgrad.system.per_thread import on_fresh_stack
from tests.capture.compare import bits
from tests.capture.test_programs import PROGRAMS

F = nn.functional


class Net(nn.Module):
    """A model with many things that may change: an attribute, a list, a dictionary, a buffer, and the training flag."""

    factor = 1.5

    def __init__(self):
        super().__init__()
        self.inner, self.out, self.drop = nn.Linear(3, 4), nn.Linear(4, 2), nn.Dropout(0.25)
        self.register_buffer("shift", torch.ones(4))
        self.scale, self.powers, self.settings = 2.0, [1.0, 0.5], {"bias": 0.25, "act": torch.tanh}

    def forward(self, x):
        h = self.drop(self.settings["act"](self.inner(x) * self.scale + self.shift) * self.factor)
        return self.out(h) * self.powers[0] + self.settings["bias"]


class World:
    """A training step, and what it depends on."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.margin = [0.5]
        margin, offset = self.margin, 0.0
        model, optimizer = self.model, self.optimizer

        def step(x, y, weight=1.0, clear=True):
            if clear:
                optimizer.zero_grad()
            out = model(x) * GAIN + margin[0] + offset  # noqa: F821
            loss = F.cross_entropy(out, y) * weight
            loss.backward()
            optimizer.step()
            return loss, out.detach()

        def set_offset(value):
            nonlocal offset
            offset = value

        self.set_offset = set_offset
        own = {"GAIN": 1.0, "F": F, "__name__": __name__}  # each world has global variables of its own
        self.step = type(step)(step.__code__, own, "step", step.__defaults__, step.__closure__)

    def after(self):
        m, o = self.model, self.optimizer
        state = {k: bits(v) for k, v in o.state_dict()["state"].items()}
        return (
            [bits(p) for p in m.parameters()], [None if p.grad is None else bits(p.grad) for p in m.parameters()],
            [p._version for p in m.parameters()], bits(m.shift), state, torch.get_rng_state().tolist(),
        )  # fmt: skip


def _factor(world, r):
    world.model.factor = r.choice([1.5, 1.0, 0.5])


def _forget_factor(world, r):
    world.model.__dict__.pop("factor", None)


MUTATIONS = [
    lambda w, r: setattr(w.model, "scale", r.choice([2.0, 1, 1.0, True])),
    lambda w, r: w.model.powers.__setitem__(0, r.choice([1.0, -0.5, 0.0, -0.0])),
    lambda w, r: w.model.settings.__setitem__("bias", r.choice([0.25, 0.5])),
    lambda w, r: w.model.settings.__setitem__("act", r.choice([torch.tanh, torch.relu])),
    lambda w, r: w.model.train(r.choice([True, False])),
    lambda w, r: w.model.shift.add_(0.5),
    lambda w, r: setattr(w.model, "shift", torch.full((4,), r.choice([1.0, 2.0]))),
    lambda w, r: setattr(w.model.drop, "p", r.choice([0.25, 0.5])),
    lambda w, r: w.model.out.weight.data.mul_(0.5),
    lambda w, r: setattr(w.model.out.weight, "data", w.model.out.weight.data * 0.5),
    lambda w, r: setattr(w.model.out, "weight", nn.Parameter(w.model.out.weight.detach() * 0.5)),
    lambda w, r: w.model.inner.bias.requires_grad_(r.choice([True, False])),
    lambda w, r: w.optimizer.param_groups[0].__setitem__("lr", r.choice([0.01, 0.02])),
    lambda w, r: w.optimizer.param_groups[0].__setitem__("weight_decay", r.choice([0, 0.1])),
    lambda w, r: w.optimizer.zero_grad(),
    lambda w, r: w.optimizer.load_state_dict(w.optimizer.state_dict()),
    lambda w, r: w.model.load_state_dict({k: v * 0.9 for k, v in w.model.state_dict().items()}),
    lambda w, r: w.margin.__setitem__(0, r.choice([0.5, 0.75])),
    lambda w, r: w.set_offset(r.choice([0.0, 0.125])),
    lambda w, r: w.step.__globals__.__setitem__("GAIN", r.choice([1.0, 2.0, 1])),
    lambda w, r: setattr(w.step, "__defaults__", (r.choice([1.0, 2.0]), True)),
    lambda w, r: w.model.inner.register_forward_hook(lambda m, a, out: out * 2),
    lambda w, r: w.model.inner._forward_hooks.clear(),
    lambda w, r: setattr(w.model.out, "forward", lambda x: F.linear(x, w.model.out.weight)),
    lambda w, r: w.model.out.__dict__.pop("forward", None),
    _factor, _forget_factor,
    lambda w, r: torch.manual_seed(r.randrange(5)),
    lambda w, r: w.model.out.weight.grad is not None and w.model.out.weight.grad.mul_(0.5),
    lambda w, r: setattr(w.model.out.weight, "grad", None),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_is_older_than_its_program(seed):
    """Between calls, what the program depends on changes, in one world that is compiled and one that is not."""
    rng = random.Random(seed)
    plain, other = World(), World()
    region = Region(other.step, limit=10**6)
    state = torch.get_rng_state()
    for turn in range(60):
        chosen, choice = [], rng.randrange(2**30)
        if turn > 6 and rng.random() < 0.3:
            chosen = [rng.randrange(len(MUTATIONS)) for _ in range(rng.choice([1, 1, 2]))]
        rows = rng.choice([4, 4, 4, 4, 2])
        x, y = torch.randn(rows, 3, generator=torch.Generator().manual_seed(turn)), torch.arange(rows) % 2
        given = rng.choice([{}, {}, {}, {}, {"clear": False}])
        found = []
        for world, step in ((plain, plain.step), (other, region)):
            torch.set_rng_state(state)
            for c in chosen:
                MUTATIONS[c](world, random.Random(choice))
            found.append((bits(step(x, y, **given)), world.after()))
        state = torch.get_rng_state()
        assert found[0] == found[1], (turn, chosen)
    assert region.plans > 1, region.explain()


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_steps_of_programs(name):
    make, x, y = PROGRAMS[name][:3]

    def world():
        torch.manual_seed(1)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    found = []
    for compiled in (False, True):
        model, step = world()
        run = torch.compile(step) if compiled else step
        torch.manual_seed(2)
        steps = []
        for _ in range(8):
            steps.append((bits(run(x(), y())), [bits(p) for p in model.parameters()]))
            steps.append([(bits(p.grad), p._version) for p in model.parameters()])
        found.append((steps, torch.get_rng_state().tolist()))
    assert found[0] == found[1]
    assert region_of(run).plans == 1, region_of(run).explain()
    assert "one by one" not in region_of(run).explain(), region_of(run).explain()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_of_programs(name, mode):
    make, x = PROGRAMS[name][:2]
    torch.manual_seed(1)
    model = make().eval()
    compiled = torch.compile(model)
    with mode():
        for _ in range(6):
            given = x()
            expected, found = model(given), compiled(given)
            assert bits(expected) == bits(found) and expected.is_inference() == found.is_inference()
    assert compiled._region.plans == 1, compiled._region.explain()
    assert "one by one" not in compiled._region.explain(), compiled._region.explain()


def _in_modes(call):
    """What a call gives in each mode of a thread."""
    with torch.no_grad():
        yield call()
    with torch.device("meta"):
        yield call()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        yield call()
    with torch.inference_mode():
        yield call()
    yield call()


@pytest.mark.parametrize("made_in", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_plan_is_for_the_modes_of_the_thread_that_calls(made_in):
    weight = torch.ones(2, requires_grad=True)

    def program():
        return (weight * 2).sum(), torch.zeros(2)

    region = Region(program)
    with made_in():
        for _ in range(6):
            region()
    assert region.plans == 1, region.explain()

    def seen(call):
        made, zeros = call()
        return made.requires_grad, made.is_inference(), zeros.is_inference(), zeros.device.type

    def compare():
        for _ in range(3):
            assert [*_in_modes(lambda: seen(region))] == [*_in_modes(lambda: seen(program))]

    compare()
    with ThreadPoolExecutor(1) as others:
        others.submit(compare).result()
        with torch.no_grad():
            others.submit(compare).result()
    on_fresh_stack(compare)
    with torch.no_grad():
        assert on_fresh_stack(lambda: [seen(region), *_in_modes(lambda: seen(region))]) == on_fresh_stack(
            lambda: [seen(program), *_in_modes(lambda: seen(program))]
        )
    compare()


@pytest.mark.parametrize("seed", range(4))
def test_threads_that_come_and_go_have_modes_of_their_own(seed):
    rng = random.Random(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    region, x = Region(model), torch.randn(5, 3)
    for _ in range(6):
        region(x)
    assert region.plans == 1, region.explain()
    seen, live = [], []

    def compare(modes, other):
        for mode in modes:
            with mode():
                with other():
                    pass
                found, expected = region(x), model(x)
                same = bits(found.detach()) == bits(expected.detach())
                seen.append(same and found.requires_grad is expected.requires_grad
                            and found.is_inference() is expected.is_inference())  # fmt: skip

    choices = [torch.enable_grad, torch.no_grad, torch.inference_mode, nullcontext]
    for _ in range(40):
        given = rng.choices(choices, k=4), rng.choice(choices)
        live.append(threading.Thread(target=compare, args=given))
        live[-1].start()
        if rng.random() < 0.7:
            live.pop(rng.randrange(len(live))).join()
        compare(rng.choices(choices, k=2), rng.choice(choices))
    for thread in live:
        thread.join()
    assert all(seen) and len(seen) == 40 * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_plans_in_forked_processes():
    model = nn.Linear(3, 2)
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(5, 3)

    def step():
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    region = Region(step)
    for _ in range(6):
        region()
    assert region.plans == 1, region.explain()
    expected = copy.deepcopy(model)
    later = torch.optim.SGD(expected.parameters(), lr=0.05)
    for _ in range(3):
        later.zero_grad()
        expected(x).pow(2).sum().backward()
        later.step()
    child = os.fork()
    if child == 0:
        same = 1
        try:
            optimizer.param_groups[0]["lr"] = 0.05
            for _ in range(3):
                region()
            same = bits([*model.parameters()]) != bits([*expected.parameters()])
        finally:
            os._exit(int(same))
    assert os.waitpid(child, 0)[1] == 0


def test_inference_in_other_threads_leaves_a_region_its_plan():
    model = torch.compile(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), fullgraph=True)
    region, x, entered = model._region, torch.randn(5, 3), threading.Barrier(3, timeout=60)

    def answered():
        with torch.inference_mode():
            for _ in range(6):
                entered.wait()  # all threads are in inference mode during all calls
                model(x)

    threads = [threading.Thread(target=answered) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # (A call while another thread records one leaves a note.)
    assert region.plans == 1 and not [note for note in region.notes if "capture on" not in note], region.explain()
    region.notes.clear()
    calls = []
    region._ready = [
        (fits, same, types.SimpleNamespace(run=calls.append, apart=None)) for fits, same, _ in region._ready
    ]
    with torch.inference_mode(), ThreadPoolExecutor(1) as others:
        with torch.inference_mode():
            model(x)
        others.submit(torch.inference_mode()(model), x).result()
        assert len(calls) == 2
        others.submit(model, x).result()  # that thread is not in inference mode: another kind of call
        assert len(calls) == 2 and not region.notes, region.explain()
    with torch.inference_mode(), torch.profiler.profile():
        model(x)
    assert [*region.notes] == ["it was called with profiler on"]


def test_what_another_thread_has_just_switched_off_leaves_no_note(monkeypatch):
    class OnAMomentAgo(list):
        def __bool__(self):
            return True

    region = Region(lambda x: x * 2)
    monkeypatch.setattr("tensorgrad.capture.region.BESIDE_INFERENCE", OnAMomentAgo())
    assert region(torch.ones(2)).tolist() == [2, 2]
    assert not region.notes


counter = []
total = 0


def _appends(x):
    counter.append(1)
    return x * 2


def _sets_a_global(x):
    global total
    total += 1
    return x * 2


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x * 2


def _prints(x):
    print("called")
    return x * 2


def _draws(x):
    return x * random.random()


def _branches(x):
    return x * 2 if x.sum() > 0 else x


def _disabled(x):
    return torch.compiler.disable(torch.relu)(x)


REFUSED = {
    "append": (_appends, "changes"), "global": (_sets_a_global, "'total'"), "attribute": (Counting(), "'calls'"),
    "print": (_prints, "print"), "random": (_draws, "random"), "item": (lambda x: x.sum().item(), "item"),
    "branch": (_branches, "reads"), "numpy": (lambda x: x.numpy() + 1, "numpy"),
    "list": (lambda x: x.tolist(), "tolist"), "version": (lambda x: x._version, "_version"),
    "a view": (lambda x: x[0], "view"), "disable": (_disabled, "graph break"),
    "hook": (lambda x: x.clone().requires_grad_().register_hook(print) and x, "register_hook"),
}  # fmt: skip


def _sets_a_mode(x):
    torch.set_grad_enabled(not torch.is_grad_enabled())
    return x * 2


def test_a_mode_that_is_left_changed():
    region = Region(_sets_a_mode)
    try:
        for i in range(8):
            region(torch.ones(2))
            assert torch.is_grad_enabled() is (i % 2 == 1)
    finally:
        torch.set_grad_enabled(True)


def test_a_dictionary_without_entries_that_has_the_global_variables_of_a_function():
    own = {}

    def longer(x):
        return x * (1 + len(own))

    region = Region(types.FunctionType(longer.__code__, own, "longer", None, longer.__closure__))
    x = torch.ones(2)
    for _ in range(6):
        region(x)
    assert region.plans
    own["y"] = 1
    assert region(x).tolist() == [2, 2]


def test_a_dictionary_that_makes_entries_is_only_looked_at():
    counts = collections.defaultdict(int, a=1)
    region = Region(lambda x: x * counts["a"] if "b" not in counts else x)
    for _ in range(6):
        region(torch.ones(2))
    assert region.plans == 1 and dict(counts) == {"a": 1}
    del counts["a"]
    assert region(torch.ones(2)).tolist() == [0, 0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_replay_would_skip_stays_eager_and_says_why(name):
    function, reason = REFUSED[name]
    region = Region(function)
    for i in range(7):
        x = torch.full((2,), float(i - 3))
        found, expected = region(x), function(x)
        assert name == "random" or (repr(found), bits(x)) == (repr(expected), bits(x))
    assert region.plans == 0 and reason in region.explain(), region.explain()
    assert ".py" in region.explain() or name == "attribute"


def _double(self, x):
    return self.inner(x) * 2


def _triple(self, x):
    return self.inner(x) * 3


class Renamed(nn.Module):
    """What a module's call names is a method that the program has under another name, too."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    forward = _double


REPLACED = {
    "of the class": lambda model: setattr(type(model), "forward", _triple),
    "of the instance": lambda model: setattr(model, "forward", lambda x: _triple(model, x)),
    "by a static method": lambda model: setattr(type(model), "forward", staticmethod(lambda x: model.inner(x) * 3)),
}


@pytest.mark.parametrize("before", [None, "of the instance", "by a static method"])
@pytest.mark.parametrize("replace", REPLACED)
def test_methods_that_only_the_library_names_are_guarded(before, replace):
    """A program says `model(x)`; which function that runs is the business of `nn.Module`."""
    model = type("Own", (Renamed,), {"forward": _double})()
    if before == "of the instance":
        model.forward = lambda x: _double(model, x)
    elif before is not None:
        type(model).forward = staticmethod(lambda x: _double(model, x))
    region = Region(lambda x: model(x))
    x = torch.ones(1, 2)
    for _ in range(6):
        region(x)
    assert region.plans == 1, region.explain()
    REPLACED[replace](model)
    for _ in range(6):
        assert bits(region(x)) == bits(model(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_function_that_ran_is_guarded(monkeypatch, name):
    """The walk finds them all by itself, without looking at every object of the process."""
    make, x, y = PROGRAMS[name][:3]
    model = make()
    optimizer = torch.optim.Adam(model.parameters())

    def step(x, y):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    given = x(), y()
    with Watch() as watch:
        step(*given)
    others = [f for f in gc.get_referrers(*watch.codes) if isinstance(f, types.FunctionType)]
    ran = [f for f in others if f.__code__ in watch.codes and (f is step or f.__code__ is not step.__code__)]
    monkeypatch.setattr(gc, "get_referrers", None)
    guarded = [guard[0] for guard in State([step], watch)._functions]
    inner = {code for outer in watch.codes for code in outer.co_consts}  # made by what ran, each time
    missed = [f for f in ran if f.__code__ not in inner and not any(f is one for one in guarded)]
    assert ran and not missed


def test_effects_happen_once_per_call():
    del counter[:]
    region = Region(_appends)
    for _ in range(7):
        region(torch.ones(2))
    assert len(counter) == 7


def test_fullgraph_raises_with_the_place():
    with pytest.raises(GraphBreak, match=r"print.*test_regions\.py, line"):
        torch.compile(_prints, fullgraph=True)(torch.ones(2))


def test_errors_are_those_of_the_program():
    table = torch.ones(3, 2)
    region = Region(lambda i: F.embedding(i, table))
    for _ in range(6):
        region(torch.tensor([0, 2]))
    assert region.plans == 1
    with pytest.raises(IndexError) as expected:
        F.embedding(torch.tensor([0, 3]), table)
    with pytest.raises(IndexError) as found:
        region(torch.tensor([0, 3]))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("first", ["the tensor", "a view of it", "another"])
def test_an_argument_that_the_program_reaches_by_itself(first):
    """A recording cannot tell which of the two was used."""
    w = torch.tensor([2.0, 3.0])
    region = Region(lambda x: x * w)
    given = {"the tensor": w, "a view of it": w[:], "another": torch.ones(2)}
    for _ in range(6):
        region(given[first])
    assert region.plans == (first == "another")
    for x in given.values():
        assert region(x).tolist() == (x * w).tolist()


def test_the_loss_that_a_step_returns_cannot_be_differentiated_again():
    w = torch.ones(2, requires_grad=True)

    @torch.compile
    def step(x):
        w.grad = None
        loss = (w * x).exp().sum()
        loss.backward()
        return loss

    for _ in range(7):
        loss = step(torch.ones(2))
    assert step._region.plans == 1 and loss.requires_grad and loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_results_are_fresh_and_arguments_are_returned_as_they_are():
    region = Region(lambda x: (x, x + 1, {"y": [x * 2, None, 3]}))
    kept = []
    for i in range(7):
        x = torch.full((2,), float(i))
        given, *rest = region(x)
        assert given is x
        kept.append(rest)
    assert [r[0].tolist() for r in kept] == [[i + 1.0] * 2 for i in range(7)]
    assert [r[1]["y"][0].tolist() for r in kept] == [[i * 2.0] * 2 for i in range(7)] and region.plans == 1


def test_writes_to_an_argument():
    region = Region(lambda x: x.add_(1).mul_(2).sum())
    for i in range(7):
        x = torch.full((2,), float(i))
        assert region(x).item() == 4 * (i + 1) and x.tolist() == [2 * (i + 1)] * 2 and x._version == 2
    assert region.plans == 1


def test_modules_keep_their_names_and_copies_are_apart():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    compiled = torch.compile(model)
    assert isinstance(compiled, OptimizedModule) and compiled._orig_mod is model
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert compiled.eval() is compiled and not model.training
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(other) is OptimizedModule and other._orig_mod is not model
    x = torch.ones(1, 2)
    model.compile()
    with torch.no_grad():
        for _ in range(6):
            model(x)
        assert region_of(model).plans == 1
        other = copy.deepcopy(model)
        other[0].weight.zero_()
        other[0].bias.zero_()
        assert other(x).tolist() == [[0, 0, 0]] and region_of(other) is None


def test_backends_and_options():
    seen = []

    def backend(module, inputs):
        seen.append((module, inputs))
        return module.forward

    double = torch.compile(lambda x: x * 2, backend=backend)
    for _ in range(6):
        assert double(torch.ones(2)).tolist() == [2, 2]
    assert len(seen) == 1 and seen[0][1][0].shape == (2,)
    with pytest.raises(RuntimeError, match="Invalid backend"):
        torch.compile(backend, backend="none")
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(backend, mode="none")
    with pytest.raises(RuntimeError, match="both"):
        torch.compile(backend, mode="default", options={"a": 1})
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)
    assert torch.compile(backend, disable=True) is backend


def test_a_region_has_eight_plans():
    region = Region(lambda x: x + 1)
    for n in range(1, 12):
        for _ in range(6):
            assert region(torch.ones(n)).tolist() == [2] * n
    assert region.plans == 8 and "limit" in region.explain()
    region.reset()
    assert region.plans == 0


def test_what_the_collector_calls_is_not_of_the_program():
    """Other libraries are told of collections, and a finalizer may run in the middle of anything."""
    told = []

    def note(phase, info):
        told.append(id(info))  # of whose effects a watch knows nothing

    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    compiled = torch.compile(layer)
    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1, 1, 1)
    try:
        with torch.no_grad():
            for _ in range(8):
                compiled(x)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    region = region_of(compiled)
    assert told and region.plans == 1, region.explain()


def _adds_in_place(x):
    y = x * 2
    y += 1  # of a list, that would change it
    return y


CALLS = {  # how many calls run eagerly until there is a plan
    "only computes": (lambda x: (x * 2).relu(), 3),
    "appends to a list of its own": (lambda x: ([x * 2].append(x), x * 2)[1], 4),
    "adds in place": (_adds_in_place, 4),
}


@pytest.mark.parametrize("name", CALLS)
def test_how_many_calls_are_eager(name):
    function, calls = CALLS[name]
    region = Region(function)
    for i in range(6):
        assert region.plans == (i >= calls), region.explain()
        region(torch.ones(2))


def test_changes_of_a_program_that_cannot_be_recorded_happen_once():
    """A call that fails to be recorded runs again; no such call may have changed anything."""
    sparse, seen = torch.eye(2).to_sparse(), []

    def appends(x):
        seen.append(1)
        return sparse @ x

    region = Region(appends)
    for _ in range(6):
        region(torch.ones(2, 1))
    assert len(seen) == 6 and not region.plans
