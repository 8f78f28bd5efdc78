"""Plans and all that a program can reach: containers and their order, classes of classes, names that are missing."""

import contextlib
import functools
import random
import sys
import types

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.region import Region
from tests.capture.test_replaced import outcome

F = nn.functional

SOURCE = """
import collections
import functools
import operator
from dataclasses import dataclass
import tensorgrad as torch
from tensorgrad import nn
F = nn.functional
class Meta(type):
    level = 0.5
    @property
    def rate(cls):
        return cls.level
class Counted(metaclass=Meta):
    pass
@dataclass
class Config:
    slope: float = 0.25
    kind: str = "tanh"
    def act(self, h):
        return getattr(torch, self.kind)(h) * self.slope
class Options(dict):
    def value(self, name):
        return self[name] if name in self else 0.125
class Cached:
    def __init__(self):
        self.base = 1.5
    @functools.cached_property
    def double(self):
        return 2 * self.base
    half = functools.partialmethod(lambda self, h, by: h * by, by=0.5)
    def __getattr__(self, name):
        if name == "missing":
            return 0.75
        raise AttributeError(name)
class Lookup:
    table = {"a": 1.0}
    def __getitem__(self, k):
        return self.table[k]
    def __contains__(self, k):
        return k in self.table
    def __len__(self):
        return len(self.table)
    def __bool__(self):
        return self.on
    on = True
def maker():
    inner = 0.5
    def f(h):
        return h * inner
    def set_(v):
        nonlocal inner
        inner = v
    return f, set_
f, set_inner = maker()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Tanh()])
        self.by_name = nn.ModuleDict({"x": nn.ReLU(), "y": nn.Sigmoid()})
        self.config, self.options, self.cached, self.lookup = Config(), Options(z=0.5), Cached(), Lookup()
        self.steps = [torch.sin, F.relu]
        self.order = collections.OrderedDict(p=1.0, q=2.0)
        self.active = {"x"}
        self.names = ("a", "b")
        self.size = (1, 2.0)
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))])
        self.register_buffer("shift", torch.ones(4))
    def forward(self, x):
        h = getattr(self, self.names[0])(x) * Counted.rate
        for layer in self.layers:
            h = layer(h)
        for name, layer in self.by_name.items():
            if name in self.active:
                h = layer(h) + 0.5
        h = self.config.act(h) + self.options.value("z") + self.options.value("w")
        h = self.cached.half(h) * self.cached.missing
        if self.lookup and "a" in self.lookup:
            h = h * self.lookup["a"] + len(self.lookup)
        for step in self.steps:
            h = step(h)
        for k, v in self.order.items():
            h = h * v + (0.5 if k == "p" else 0.25)
        for w in self.weights:
            h = h * w
        h = f(h) + getattr(self, "extra", 0.5) + self.shift + operator.attrgetter("config.slope")(self)
        if hasattr(self.a, "mask"):
            h = h * self.a.mask
        h = h + getattr(self.b.weight, "gain", 0.0)
        import HELPERS
        h = HELPERS.work(h)
        try:
            h = h * HELPERS.bonus
        except AttributeError:
            pass
        return self.b(h)
"""


class World:
    """A program in modules of its own."""

    def __init__(self):
        self.m, self.h = types.ModuleType(f"reachable_{id(self)}"), types.ModuleType(f"helpers_{id(self)}")
        sys.modules[self.m.__name__], sys.modules[self.h.__name__] = self.m, self.h
        exec("def work(x):\n    return x * 1.5\n", self.h.__dict__)
        exec(SOURCE.replace("HELPERS", self.h.__name__), self.m.__dict__)
        torch.manual_seed(0)
        self.net, self.handles = self.m.Net(), []

    def close(self):
        del sys.modules[self.m.__name__], sys.modules[self.h.__name__]


def another_helper(w, r):
    made = types.ModuleType(w.h.__name__)
    exec(f"def work(x):\n    return x * {r.choice([2, 3])}\n", made.__dict__)
    sys.modules[made.__name__] = w.h = made


def another_dictionary(owner, **changed):
    owner.__dict__ = {**owner.__dict__, **changed}


def another_meta(w, rate):
    return type("Other", (w.m.Meta,), {"rate": property(lambda cls: rate)})


def either(r, *values):
    return r.choice(values)


MUTATIONS = {
    "Meta.level": lambda w, r: setattr(w.m.Meta, "level", either(r, 0.5, 1.5)),
    "Meta.rate": lambda w, r: setattr(w.m.Meta, "rate", either(r, 2.5, property(lambda c: 3.0))),
    "Counted.level": lambda w, r: setattr(w.m.Counted, "level", either(r, 0.1, 0.2)),
    "Counted.__class__": lambda w, r: setattr(w.m.Counted, "__class__", another_meta(w, either(r, 4.0, 5.0))),
    "config.slope": lambda w, r: setattr(w.net.config, "slope", either(r, 0.25, 0.35)),
    "config.kind": lambda w, r: setattr(w.net.config, "kind", either(r, "tanh", "relu")),
    "Config.act": lambda w, r: setattr(w.m.Config, "act", either(r, lambda s, h: h, lambda s, h: h * 2)),
    "config": lambda w, r: setattr(w.net, "config", w.m.Config(either(r, 0.5, 0.6))),
    "config.__dict__": lambda w, r: another_dictionary(w.net.config, slope=either(r, 0.7, 0.8)),
    "net.__dict__": lambda w, r: another_dictionary(w.net, names=either(r, ("a", "b"), ("a", "a"))),
    "options": lambda w, r: w.net.options.__setitem__("w", either(r, 0.5, 0.6)),
    "options del": lambda w, r: w.net.options.pop("w", None),
    "Options.value": lambda w, r: setattr(w.m.Options, "value", either(r, lambda s, n: 0.5, lambda s, n: 0.7)),
    "Options.__contains__": lambda w, r: setattr(w.m.Options, "__contains__", lambda s, n: False),
    "cached.base": lambda w, r: setattr(w.net.cached, "base", either(r, 1.5, 2.5)),
    "cached.half": lambda w, r: setattr(
        w.m.Cached, "half", functools.partialmethod(lambda s, h, by: h * by, by=either(r, 0.1, 0.2))
    ),
    "half.keywords": lambda w, r: w.m.Cached.__dict__["half"].keywords.__setitem__("by", either(r, 0.3, 0.4)),
    "half.func": lambda w, r: setattr(
        w.m.Cached.__dict__["half"], "func", either(r, lambda s, h, by: h + by, lambda s, h, by: h - by)
    ),
    "Cached.__getattr__": lambda w, r: setattr(
        w.m.Cached, "__getattr__", either(r, lambda s, n: 0.5, lambda s, n: 0.6)
    ),
    "cached.missing": lambda w, r: setattr(w.net.cached, "missing", either(r, 0.5, 0.6)),
    "Lookup.table": lambda w, r: setattr(w.m.Lookup, "table", {"a": either(r, 1.0, 2.0)}),
    "Lookup.table[]": lambda w, r: w.m.Lookup.table.__setitem__(either(r, "a", "b"), either(r, 1.0, 2.0)),
    "Lookup.__len__": lambda w, r: setattr(w.m.Lookup, "__len__", either(r, lambda s: 1, lambda s: 5)),
    "Lookup.__bool__": lambda w, r: setattr(w.m.Lookup, "__bool__", either(r, lambda s: False, lambda s: True)),
    "lookup.on": lambda w, r: setattr(w.net.lookup, "on", either(r, True, False)),
    "inner": lambda w, r: w.m.set_inner(either(r, 0.5, 0.6)),
    "steps": lambda w, r: w.net.steps.__setitem__(0, either(r, torch.sin, torch.cos)),
    "steps+": lambda w, r: (
        w.net.steps.append(either(r, torch.sin, torch.cos)) if len(w.net.steps) < 5 else w.net.steps.pop()
    ),
    "order": lambda w, r: w.net.order.move_to_end(either(r, "p", "q")),
    "order v": lambda w, r: w.net.order.__setitem__("p", either(r, 1.0, 3.0)),
    "active": lambda w, r: either(r, w.net.active.add, w.net.active.discard)(either(r, "x", "y")),
    "names": lambda w, r: setattr(w.net, "names", either(r, ("a", "b"), ("a", "c"))),
    "layers+": lambda w, r: len(w.net.layers) < 4 and w.net.layers.append(either(r, nn.Tanh, nn.ReLU)()),
    "layers[]": lambda w, r: w.net.layers.__setitem__(1, either(r, nn.Tanh, nn.ReLU)()),
    "by_name": lambda w, r: w.net.by_name.__setitem__(either(r, "x", "y"), either(r, nn.Tanh, nn.ReLU)()),
    "weights": lambda w, r: w.net.weights.__setitem__(0, nn.Parameter(torch.full((4,), either(r, 1.0, 2.0)))),
    "weights+": lambda w, r: len(w.net.weights) < 4 and w.net.weights.append(nn.Parameter(torch.ones(4))),
    "weights data": lambda w, r: w.net.weights[1].data.fill_(either(r, 1.0, 2.0)),
    "requires_grad": lambda w, r: w.net.weights[0].requires_grad_(either(r, True, False)),
    "extra": lambda w, r: setattr(w.net, "extra", either(r, 0.5, 1.5)),
    "extra del": lambda w, r: w.net.__dict__.pop("extra", None),
    "Net.extra": lambda w, r: setattr(w.m.Net, "extra", either(r, 2.5, 1.5)),
    "a.mask": lambda w, r: setattr(w.net.a, "mask", either(r, 0.5, 1.5)),
    "del a.mask": lambda w, r: w.net.a.__dict__.pop("mask", None),
    "weight.gain": lambda w, r: setattr(w.net.b.weight, "gain", either(r, 0.5, 1.5)),
    "del weight.gain": lambda w, r: w.net.b.weight.__dict__.pop("gain", None),
    "shift": lambda w, r: setattr(w.net, "shift", torch.full((4,), either(r, 1.0, 2.0))),
    "shift buf": lambda w, r: w.net.register_buffer("shift", torch.full((4,), either(r, 3.0, 2.0))),
    "another helper": another_helper,
    "bonus": lambda w, r: setattr(w.h, "bonus", either(r, 0.5, 1.5)),
    "del bonus": lambda w, r: w.h.__dict__.pop("bonus", None),
    "h.work": lambda w, r: setattr(w.h, "work", either(r, torch.sin, torch.cos)),
    "h.__getattr__": lambda w, r: setattr(w.h, "__getattr__", either(r, lambda n: 0.5, lambda n: 0.6)),
    "pre hook": lambda w, r: w.handles.append(w.net.a.register_forward_pre_hook(lambda m, a: (a[0] * 2,))),
    "hook": lambda w, r: w.handles.append(w.net.register_forward_hook(lambda m, a, o: o * 2)),
    "full hook": lambda w, r: w.handles.append(
        w.net.b.register_full_backward_hook(lambda m, gi, go: tuple(g * 2 if g is not None else None for g in gi))
    ),
    "param hook": lambda w, r: w.handles.append(w.net.b.weight.register_hook(lambda g: g * 2)),
    "unhook": lambda w, r: w.handles and w.handles.pop().remove(),
    "threads": lambda w, r: torch.set_num_threads(either(r, 1, 2)),
    "deterministic": lambda w, r: torch.use_deterministic_algorithms(either(r, True, False)),
    "train": lambda w, r: w.net.train(either(r, True, False)),
    "a forward": lambda w, r: setattr(
        w.net.a, "forward", either(r, lambda x: F.linear(x, w.net.a.weight), lambda x: F.linear(x, w.net.a.weight) * 2)
    ),
    "builtin len": lambda w, r: setattr(w.m, "len", either(r, len, lambda o: 7)),
    "global F": lambda w, r: setattr(w.m, "F", either(r, F, types.SimpleNamespace(relu=torch.relu))),
}


@pytest.fixture
def worlds():
    made = World(), World()
    yield made
    for world in made:
        world.close()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(False)


THREADS = torch.get_num_threads()


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_is_older_than_what_its_program_reaches(seed, worlds):
    rng, (plain, other) = random.Random(seed), worlds
    region = Region(other.net, limit=10**6)
    for turn in range(36):
        chosen, choice = [], rng.randrange(2**30)
        if turn > 5 and rng.random() < 0.35:
            chosen = [rng.choice(list(MUTATIONS)) for _ in range(rng.choice([1, 1, 2]))]
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(turn))
        found = []
        for world, call in zip(worlds, (plain.net, region), strict=True):
            torch.manual_seed(turn)
            for name in chosen:
                with contextlib.suppress(TypeError, ValueError, AttributeError):  # after what was changed before
                    MUTATIONS[name](world, random.Random(choice))
            found.append(outcome(world, call, x, seed % 2 == 0))
        assert found[0] == found[1] or all(isinstance(f, str) for f in found), (turn, chosen)
    assert region.plans, region.explain()


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_change_alone(name, worlds):
    """A plan is there, then one thing is changed, and changed again."""
    plain, other = worlds
    region, x = Region(other.net), torch.ones(4, 3)
    for turn in range(12):
        for world in worlds:
            torch.manual_seed(turn)
            if turn > 5:
                with contextlib.suppress(TypeError):  # a class that cannot be another one
                    MUTATIONS[name](world, random.Random(turn))
        assert outcome(plain, plain.net, x, False) == outcome(other, region, x, False), turn
        assert turn != 5 or region.plans == 1, region.explain()
