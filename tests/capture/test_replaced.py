"""Plans and the classes, modules and functions that a program is made of: whatever is replaced, no plan outlives it."""

import contextlib
import functools
import random
import types

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.region import Region
from tests.capture.compare import bits

F = nn.functional

HELPERS = """
import tensorgrad as torch
RATE = 1.5
def scaled(x):
    return x * RATE
def shifted(x, by=0.25, *, twice=False):
    return x + (2 * by if twice else by)
class Tool:
    gain = 1.25
    def __init__(self):
        self.own = 0.5
    def __call__(self, x):
        return self.inner(x) * self.gain
    def inner(self, x):
        return x + self.own
    def __add__(self, x):
        return x + self.own
tool = Tool()
"""
SOURCE = """
import functools
import tensorgrad as torch
from tensorgrad import nn
F = nn.functional
GAIN = 1.0
class Described:
    value = 0.5
    def __get__(self, instance, owner):
        return self.value
def decorate(f):
    @functools.wraps(f)
    def call(*args, **kwargs):
        return f(*args, **kwargs) * call.weight
    call.weight = 1.5
    return call
class Mixin:
    offset = 0.125
    def mixed(self, h):
        return h + self.offset
class Base(nn.Module):
    depth = 2.0
    def helper(self, h):
        return h * self.depth
    @property
    def ratio(self):
        return 0.75
    @staticmethod
    def fixed(h):
        return h - 0.5
    @classmethod
    def of_class(cls, h):
        return h * cls.depth
    def unused(self, h):
        return h.exp()
class Layer(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight, self.bias) * 1.5
class Net(Mixin, Base):
    described = Described()
    act = torch.tanh
    def __init__(self):
        super().__init__()
        self.a, self.b = Layer(3, 4), nn.Linear(4, 2)
        self.table = {"k": [1.0, {"deep": 0.5}]}
        self.partial = functools.partial(torch.mul, other=torch.tensor(2.0))
    def forward(self, x):
        h = self.helper(self.a(x)) * self.ratio + self.described
        h = self.mixed(self.fixed(self.of_class(h)))
        h = helpers.tool(helpers.shifted(helpers.scaled(h))) + self.extra(h)
        h = self.partial(h) * self.table["k"][1]["deep"] * GAIN
        return self.b(h.relu()) + torch.sigmoid(h).sum()
    @decorate
    def extra(self, h):
        return helpers.tool + Net.plain(h)
    @staticmethod
    def plain(h):
        return h * 2
class Twin(Net):
    def forward(self, x):
        return super().forward(x) * 2
class Other(nn.Module):
    depth = 3.0
    def helper(self, h):
        return h * 0.25
    ratio = 0.5
    def fixed(self, h):
        return h + 3
    def of_class(self, h):
        return h - 3
"""


class World:
    def __init__(self):
        self.helpers = types.ModuleType(f"helpers_{id(self)}")
        exec(HELPERS, self.helpers.__dict__)
        self.m = types.ModuleType(f"world_{id(self)}")
        self.m.helpers = self.helpers
        exec(SOURCE, self.m.__dict__)
        torch.manual_seed(0)
        self.net = self.m.Net()


def forward2(self, x):
    return self.b(self.a(x))


MUTATIONS = {
    "Net.forward": lambda w, r: setattr(
        w.m.Net, "forward", r.choice([w.m.Net.forward, forward2, lambda self, x: self.b(self.a(x)) * 3])
    ),
    "Net.helper": lambda w, r: setattr(w.m.Net, "helper", r.choice([lambda self, h: h * 5, lambda self, h: h * 6])),
    "del Net.helper": lambda w, r: "helper" in w.m.Net.__dict__ and delattr(w.m.Net, "helper"),
    "Base.helper": lambda w, r: setattr(w.m.Base, "helper", r.choice([lambda self, h: h * 7, lambda self, h: h * 8])),
    "Base.ratio": lambda w, r: setattr(w.m.Base, "ratio", property(r.choice([lambda self: 0.1, lambda self: 0.2]))),
    "Net.ratio": lambda w, r: setattr(w.m.Net, "ratio", r.choice([0.3, 0.4])),
    "Base.fixed": lambda w, r: setattr(w.m.Base, "fixed", staticmethod(r.choice([torch.sin, torch.cos, lambda h: h]))),
    "Base.of_class": lambda w, r: setattr(
        w.m.Base, "of_class", classmethod(r.choice([lambda c, h: h, lambda c, h: h * 9]))
    ),
    "Base.depth": lambda w, r: setattr(w.m.Base, "depth", r.choice([1.0, 4.0])),
    "Net.depth": lambda w, r: setattr(w.m.Net, "depth", r.choice([1.0, 5.0])),
    "net.depth": lambda w, r: setattr(w.net, "depth", r.choice([1.5, 5.5])),
    "Mixin.mixed": lambda w, r: setattr(w.m.Mixin, "mixed", r.choice([lambda s, h: h, lambda s, h: h * 2])),
    "Mixin.offset": lambda w, r: setattr(w.m.Mixin, "offset", r.choice([1.0, 3.0])),
    "bases": lambda w, r: setattr(w.m.Net, "__bases__", r.choice([(w.m.Mixin, w.m.Base), (w.m.Mixin, w.m.Other)])),
    "__class__": lambda w, r: setattr(w.net, "__class__", r.choice([w.m.Net, w.m.Twin])),
    "Layer.forward": lambda w, r: setattr(
        w.m.Layer, "forward", r.choice([lambda s, x: F.linear(x, s.weight), nn.Linear.forward])
    ),
    "Layer.del": lambda w, r: "forward" in w.m.Layer.__dict__ and delattr(w.m.Layer, "forward"),
    "a.__class__": lambda w, r: setattr(w.net.a, "__class__", r.choice([w.m.Layer, nn.Linear])),
    "b.__class__": lambda w, r: setattr(w.net.b, "__class__", r.choice([w.m.Layer, nn.Linear])),
    "Net.__call__": lambda w, r: setattr(
        w.m.Net, "__call__", r.choice([nn.Module.__call__, lambda s, x: s.forward(x) + 1])
    ),
    "Described.value": lambda w, r: setattr(w.m.Described, "value", r.choice([0.5, 2.0])),
    "Described.__get__": lambda w, r: setattr(
        w.m.Described, "__get__", r.choice([lambda s, i, o: 1.0, lambda s, i, o: 2.0])
    ),
    "described.value": lambda w, r: setattr(w.m.Net.__dict__["described"], "value", r.choice([0.5, 7.0])),
    "helpers.scaled": lambda w, r: setattr(w.helpers, "scaled", r.choice([torch.sin, lambda x: x * 2])),
    "helpers.RATE": lambda w, r: setattr(w.helpers, "RATE", r.choice([1.5, 2.5])),
    "helpers.scaled.__code__": lambda w, r: (
        hasattr(w.helpers.scaled, "__code__")
        and setattr(w.helpers.scaled, "__code__", r.choice([lambda x: x * 11, lambda x: x * 12]).__code__)
    ),
    "shifted.defaults": lambda w, r: setattr(w.helpers.shifted, "__defaults__", (r.choice([0.25, 1.0]),)),
    "shifted.kw": lambda w, r: setattr(w.helpers.shifted, "__kwdefaults__", {"twice": r.choice([True, False])}),
    "shifted.kw in place": lambda w, r: w.helpers.shifted.__kwdefaults__.__setitem__("twice", r.choice([True, False])),
    "Tool.gain": lambda w, r: setattr(w.helpers.Tool, "gain", r.choice([1.25, 2.25])),
    "tool.own": lambda w, r: setattr(w.helpers.tool, "own", r.choice([0.5, 0.75])),
    "tool.gain": lambda w, r: setattr(w.helpers.tool, "gain", r.choice([0.5, 0.75])),
    "Tool.__call__": lambda w, r: setattr(w.helpers.Tool, "__call__", r.choice([lambda s, x: x, lambda s, x: x * 2])),
    "Tool.__add__": lambda w, r: setattr(w.helpers.Tool, "__add__", r.choice([lambda s, x: x, lambda s, x: x * 2])),
    "Tool.inner": lambda w, r: setattr(w.helpers.Tool, "inner", r.choice([lambda s, x: x, lambda s, x: x * 2])),
    "tool.inner": lambda w, r: setattr(w.helpers.tool, "inner", r.choice([lambda x: x, lambda x: x * 3])),
    "tool.__class__": lambda w, r: setattr(
        w.helpers.tool, "__class__", type("Tool2", (w.helpers.Tool,), {"inner": lambda s, x: x - 1})
    ),
    "helpers.tool": lambda w, r: setattr(w.helpers, "tool", w.helpers.Tool()),
    "m.helpers": lambda w, r: setattr(
        w.m,
        "helpers",
        r.choice([w.helpers, types.SimpleNamespace(scaled=torch.sin, shifted=torch.cos, tool=w.helpers.tool)]),
    ),
    "extra.weight": lambda w, r: setattr(w.m.Net.__dict__["extra"], "weight", r.choice([1.5, 2.5])),
    "Net.plain": lambda w, r: setattr(w.m.Net, "plain", staticmethod(r.choice([torch.sin, lambda h: h * 3]))),
    "GAIN": lambda w, r: setattr(w.m, "GAIN", r.choice([1.0, 2.0])),
    "deep": lambda w, r: w.net.table["k"][1].__setitem__("deep", r.choice([0.5, 0.6])),
    "partial": lambda w, r: setattr(
        w.net, "partial", functools.partial(torch.mul, other=torch.tensor(r.choice([2.0, 3.0])))
    ),
    "partial kw": lambda w, r: w.net.partial.keywords.__setitem__("other", torch.tensor(r.choice([2.0, 3.0]))),
    "partial value": lambda w, r: w.net.partial.keywords["other"].fill_(r.choice([2.0, 3.0])),
    "getattr": lambda w, r: setattr(
        w.m.Net,
        "__getattribute__",
        r.choice([nn.Module.__getattribute__, lambda s, n: 0.3 if n == "ratio" else object.__getattribute__(s, n)]),
    ),
    "net.forward": lambda w, r: setattr(w.net, "forward", r.choice([lambda x: x, lambda x: x * 2])),
    "del net.forward": lambda w, r: w.net.__dict__.pop("forward", None),
    "net.helper": lambda w, r: setattr(w.net, "helper", r.choice([lambda x: x, lambda x: x * 2])),
    "del net.helper": lambda w, r: w.net.__dict__.pop("helper", None),
    "b": lambda w, r: setattr(w.net, "b", nn.Sequential(nn.Linear(4, 2), nn.Tanh())),
    "mode": lambda w, r: w.net.train(r.choice([True, False])),
    "mixin in": lambda w, r: setattr(w.m.Mixin, "helper", lambda s, h: h * 13),
    "mixin out": lambda w, r: "helper" in w.m.Mixin.__dict__ and delattr(w.m.Mixin, "helper"),
    "torch.sigmoid": lambda w, r: setattr(w.m, "torch", r.choice([torch, types.SimpleNamespace(sigmoid=torch.sin)])),
}


def outcome(world, call, x, train):
    """What a call does, to the bit, or its error."""
    try:
        with torch.set_grad_enabled(train):
            out = call(x)
            if train:
                out.sum().backward()
        return bits(out), [None if p.grad is None else bits(p.grad) for p in world.net.parameters()]
    except Exception as error:  # a mutation may leave a program that cannot run
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(10))
def test_no_plan_outlives_what_its_program_is_made_of(seed):
    rng = random.Random(seed)
    worlds = plain, other = World(), World()
    region = Region(other.net, limit=10**6)
    for turn in range(40):
        chosen, choice = [], rng.randrange(2**30)
        if turn > 5 and rng.random() < 0.3:
            chosen = [rng.choice(list(MUTATIONS)) for _ in range(rng.choice([1, 1, 2]))]
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(turn))
        found = []
        for world, call in zip(worlds, (plain.net, region), strict=True):
            torch.manual_seed(turn)
            for name in chosen:
                with contextlib.suppress(TypeError, ValueError, AttributeError):  # after what was replaced before
                    MUTATIONS[name](world, random.Random(choice))
            found.append(outcome(world, call, x, seed % 2 == 0))
        assert found[0] == found[1], (turn, chosen)
    assert region.plans, region.explain()


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_replacement_alone(name):
    """A plan is there, then one thing is replaced, and replaced again."""
    plain, other = World(), World()
    region, x = Region(other.net), torch.ones(4, 3)
    for turn in range(12):
        if turn > 5:
            for world in (plain, other):
                torch.manual_seed(turn)
                MUTATIONS[name](world, random.Random(turn))
        assert outcome(plain, plain.net, x, False) == outcome(other, region, x, False), turn
        assert turn != 5 or region.plans == 1, region.explain()
