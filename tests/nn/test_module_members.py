"""Parameters, buffers and submodules of modules, their state, and what changes all of them, against PyTorch."""

import copy
import gc
import pickle
import re
import warnings
import weakref
from collections import OrderedDict

import pytest

import tensorgrad as tg
from tensorgrad import nn
from tests.nn.test_layers import assert_same_state, values
from tests.support.alike import alike, error
from tests.support.compare import assert_close, to_torch

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")


# --- parameters and the module's members ----------------------------------------------------------------------------


def test_parameter():
    data = tg.ones(2, 2)
    p = nn.Parameter(data)
    assert isinstance(p, tg.Tensor)
    assert p.requires_grad
    assert p.is_leaf
    with tg.no_grad():
        p[0, 0] = 5.0
    assert data[0, 0] == 5.0
    assert repr(p).startswith("Parameter containing:\ntensor([[5., 1.],")
    assert type(p + 1) is tg.Tensor
    assert type(p.detach()) is tg.Tensor
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    with pytest.raises(RuntimeError, match="nly Tensors of floating point"):
        nn.Parameter(tg.tensor([1]))
    assert nn.Parameter(tg.tensor([1]), requires_grad=False).dtype == tg.int64


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies(copied):
    p = nn.Parameter(tg.ones(2), requires_grad=False)
    q = copied(p)
    assert type(q) is nn.Parameter
    assert not q.requires_grad
    assert q.tolist() == [1.0, 1.0]

    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.shared = model[0]
    model[0].register_forward_hook(_nothing)
    other = copied(model)
    assert repr(other) == repr(model)
    assert other.shared is other[0]
    assert other[0].weight is other[0]._parameters["weight"]
    assert other[0].weight is not model[0].weight
    assert other[0].weight.tolist() == model[0].weight.tolist()
    # the copy's tables belong to the copy
    other[0]._parameters["weight"] = q
    assert other[0].weight is q
    assert model[0].weight is not q
    assert len(other[0]._forward_hooks) == 1


def _nothing(*args):
    return None


def test_members_are_registered():
    m = nn.Module()
    m.w = nn.Parameter(tg.ones(1))
    m.sub = nn.Linear(1, 1)
    m.plain = tg.ones(1)
    m.register_buffer("b", tg.zeros(1))
    m.register_buffer("t", tg.zeros(1), persistent=False)
    m.c = nn.Buffer(tg.zeros(1))
    m.d = nn.Buffer(tg.zeros(1), persistent=False)
    m.register_parameter("none", None)
    assert [n for n, _ in m.named_parameters()] == ["w", "sub.weight", "sub.bias"]
    assert [n for n, _ in m.named_buffers()] == ["b", "t", "c", "d"]
    assert list(m.state_dict()) == ["w", "b", "c", "sub.weight", "sub.bias"]
    assert m.none is None
    assert "plain" not in m._buffers

    m.b = tg.ones(1)  # a buffer stays one
    assert m._buffers["b"] is m.b
    m.w = None
    assert m._parameters["w"] is None
    m.sub = None
    assert list(m.state_dict()) == ["b", "c"]
    m.sub = nn.ReLU()
    m.plain = nn.Parameter(tg.ones(1))  # what was plain becomes a parameter
    assert "plain" in m._parameters
    del m.plain, m.sub, m.b, m.t
    for name in ("plain", "sub", "b", "t"):
        assert not hasattr(m, name)
        assert name not in m.__dict__


def test_tables_written_directly_are_seen():
    """Code that knows PyTorch's insides writes into the tables; attributes must follow."""
    m = nn.Linear(2, 2)
    w, p = m.weight, nn.Parameter(tg.zeros(2, 2))
    m._parameters["weight"] = p
    assert m.weight is p
    del m._parameters["weight"]  # as weight normalisation does, to put a computed tensor there
    assert not hasattr(m, "weight")
    m.weight = w * 2
    assert m.weight.grad_fn is not None
    assert "weight" not in m._parameters
    m._parameters.update(weight=p)
    assert m.weight is p
    assert m._parameters.pop("weight") is p
    assert m._parameters.pop("weight", 3) == 3
    assert not hasattr(m, "weight")
    for made in (type(m._buffers)(w=p), type(m._buffers)([("w", p)]), type(m._buffers)({"w": p}).copy()):
        assert made == {"w": p} and "w" not in m._buffers  # as torchopt makes tables, which are none of a module's
    m._parameters = {"other": p}
    assert m.other is p
    assert not hasattr(m, "bias")
    m._parameters.clear()
    assert not hasattr(m, "other")
    assert m._parameters.setdefault("a", p) is p
    assert m.a is p
    m._parameters["forward"] = p  # what the class has comes first
    assert callable(m.forward)
    del m.__dict__["a"]  # somebody removed just the mirror
    assert m.a is p


def test_modules_cloned_by_their_dictionaries():
    """As meta-learning code clones a module: parameters that are not leaves, in a copy of the dictionary."""
    m = nn.Linear(2, 2)
    clone = m.__new__(type(m))
    clone.__dict__ = m.__dict__.copy()
    clone._parameters = clone._parameters.copy()
    for name, p in m._parameters.items():
        clone._parameters[name] = p * 2
    assert clone.weight.grad_fn is not None
    assert m.weight.grad_fn is None
    clone(tg.ones(1, 2)).sum().backward()
    assert m.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_shallow_copies_have_their_own_tables():
    m = nn.Linear(2, 2)
    by_hand = m.__new__(type(m))
    by_hand.__dict__ = m.__dict__.copy()
    for other in (copy.copy(m), by_hand):
        assert other.weight is m.weight
        p = nn.Parameter(tg.zeros(2, 2))
        other.weight = p
        assert other.weight is other._parameters["weight"] is p
        assert m.weight is m._parameters["weight"] is not p


@needs_torch
def test_registration_errors():
    def attempts(lib, m):
        p, t = lib.nn.Parameter(lib.ones(1)), lib.ones(1)
        yield lambda: m.register_parameter("weight.x", p)
        yield lambda: m.register_parameter("", p)
        yield lambda: m.register_parameter("forward", p)
        yield lambda: m.register_parameter("x", t)
        yield lambda: m.register_parameter(3, p)
        yield lambda: m.register_parameter("x", p * 2)
        yield lambda: m.register_buffer("x.y", t)
        yield lambda: m.register_buffer("weight", t)
        yield lambda: m.register_buffer("x", [1])
        yield lambda: m.register_buffer(3, t)
        yield lambda: m.add_module("x", t)
        yield lambda: m.add_module("x.y", m)
        yield lambda: m.add_module("", m)
        yield lambda: m.add_module("training", m)
        yield lambda: m.add_module(3, m)
        yield lambda: setattr(m, "weight", t)
        yield lambda: setattr(m, "weight", m)
        yield lambda: m.nothing
        yield lambda: m.get_submodule("a.b")
        yield lambda: m.get_submodule("weight")
        yield lambda: m.get_parameter("training")
        yield lambda: m.get_parameter("x")
        yield lambda: m.get_buffer("weight")
        yield lambda: m.set_submodule("", m)
        yield lambda: m.set_submodule("x", t, strict=True)
        yield lambda: m.set_submodule("x", m, strict=True)
        yield lambda: m.set_submodule("weight", m)
        yield lambda: m.train("yes")
        yield lambda: m.to(lib.int64)
        yield lambda: m.load_state_dict([1])
        yield lambda: lib.nn.Module(1)
        yield lambda: lib.nn.Module(x=1)
        yield lambda: lib.nn.Module()(1)
        yield lambda: delattr(m, "nothing")

    for mine, theirs in zip(attempts(tg, nn.Linear(1, 1)), attempts(torch, torch.nn.Linear(1, 1)), strict=True):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises(type(expected.value)) as got:
            mine()
        short = [re.sub(r"(torch|tensorgrad)[\w.]*\.(\w+)", r"\2", str(e.value)) for e in (got, expected)]
        assert short[0] == short[1]


def test_assignment_before_init():
    class Late(nn.Module):
        def __init__(self, what):
            self.x = what

    for what, text in ((nn.Parameter(tg.ones(1)), "parameters"), (nn.Linear(1, 1), "module")):
        with pytest.raises(AttributeError, match=f"cannot assign {text} before Module.__init__"):
            Late(what)


def test_attributes_before_init():
    """Plain attributes may come first, even tensors; multiple inheritance works."""

    class Mixed(nn.Module):
        def __init__(self):
            self.early = 3
            super().__init__()

    assert Mixed().early == 3

    class Other:
        def hello(self):
            return "hello"

    class Both(nn.Module, Other):
        pass

    assert Both().hello() == "hello"

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    assert Wrapper(nn.Linear(2, 3)).out_features == 3


@needs_torch
def test_traversal():
    def build(lib):
        shared = lib.nn.Linear(1, 1)
        m = lib.nn.Sequential(shared, lib.nn.Sequential(shared, lib.nn.BatchNorm1d(1)))
        m.tied = shared.weight
        m.nothing = lib.nn.ReLU()
        m.nothing = None
        return m

    mine, theirs = build(tg), build(torch)
    for call in (
        lambda m: [n for n, _ in m.named_parameters()],
        lambda m: [n for n, _ in m.named_parameters(prefix="x", recurse=False)],
        lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
        lambda m: [n for n, _ in m.named_buffers()],
        lambda m: [n for n, _ in m.named_modules()],
        lambda m: [n for n, _ in m.named_modules(remove_duplicate=False, prefix="y")],
        lambda m: [n for n, _ in m.named_children()],
        lambda m: [type(x).__name__ for x in m.modules()],
        lambda m: [type(x).__name__ for x in m.children()],
        lambda m: len(list(m.parameters())),
        lambda m: len(list(m.buffers())),
        lambda m: list(m.state_dict(prefix="p.")),
        lambda m: [k for k in dir(m) if k in ("tied", "0", "nothing", "weight")],
        repr,
    ):
        assert call(mine) == call(theirs)
    assert mine.get_submodule("1.1") is mine[1][1]
    assert mine.get_parameter("1.0.weight") is mine[0].weight
    assert mine.get_buffer("1.1.running_mean") is mine[1][1].running_mean
    mine.set_submodule("1.1", nn.ReLU())
    assert isinstance(mine[1][1], nn.ReLU)


@needs_torch
def test_repr_of_nested_modules():
    def build(n):
        class Net(n.Module):
            def __init__(self):
                super().__init__()
                self.a = n.Sequential(OrderedDict(conv=n.Conv2d(1, 2, 3, bias=False), act=n.ReLU(inplace=True)))
                self.b = n.ModuleList([n.Linear(1, 1), n.Linear(1, 1), n.ReLU()])
                self.c = n.ModuleDict({"x": n.Dropout(), "y": n.ModuleList()})
                self.d = n.MultiheadAttention(4, 2)

            def extra_repr(self):
                return "one\ntwo"

        return Net()

    assert repr(build(nn)) == repr(build(torch.nn))


# --- state -----------------------------------------------------------------------------------------------------------


@needs_torch
def test_load_state_dict_errors():
    def build(n):
        return n.Sequential(n.Linear(2, 3), n.BatchNorm1d(3))

    def attempts(lib):
        state = build(lib.nn).state_dict()
        yield {**state, "0.weight": lib.zeros(3, 3), "extra": lib.zeros(1), "1.deep.er": lib.zeros(1)}
        yield {k: v for k, v in state.items() if k != "0.bias"}
        yield {**state, "0.bias": [1, 2, 3]}
        yield {**state, "1.running_mean": lib.zeros(1)}

    for mine, theirs in zip(attempts(tg), attempts(torch), strict=True):
        with pytest.raises(RuntimeError) as expected:
            build(torch.nn).load_state_dict(theirs)
        with pytest.raises(RuntimeError) as got:
            build(nn).load_state_dict(mine)
        assert str(got.value) == str(expected.value)

    state = build(nn).state_dict()
    assert repr(build(nn).load_state_dict(state)) == "<All keys matched successfully>"
    del state["0.bias"]
    state["new"] = tg.zeros(1)
    result = build(nn).load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias"]
    assert result.unexpected_keys == ["new"]


def test_load_state_dict():
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    weight = b.weight
    b.load_state_dict(a.state_dict())
    assert b.weight is weight
    assert b.weight.tolist() == a.weight.tolist()
    assert b.weight.data_ptr() != a.weight.data_ptr()
    assert b.weight.requires_grad

    state = {k: v.double() for k, v in a.state_dict().items()}
    b.load_state_dict(state)
    assert b.weight.dtype == tg.float32
    b.load_state_dict(state, assign=True)
    assert b.weight.dtype == tg.float64
    assert isinstance(b.weight, nn.Parameter)
    assert b.weight.requires_grad
    assert b.weight.data_ptr() == state["weight"].data_ptr()

    kept = a.state_dict(keep_vars=True)
    assert kept["weight"] is a.weight
    assert not a.state_dict()["weight"].requires_grad
    assert a.state_dict()["weight"].data_ptr() == a.weight.data_ptr()
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert list(a.state_dict({}, "x.")) == ["x.weight", "x.bias"]
    norm = nn.BatchNorm1d(2)
    old = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    norm.load_state_dict(old)  # a checkpoint from before that counter


def test_extra_state():
    class Counting(nn.Module):
        n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    a, b = nn.Sequential(Counting()), nn.Sequential(Counting())
    a[0].n = 5
    state = a.state_dict()
    assert state["0._extra_state"] == {"n": 5}
    b.load_state_dict(state)
    assert b[0].n == 5
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        b.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "0._extra_state"'):
        nn.Sequential(nn.ReLU()).load_state_dict(state)


def test_state_dict_hooks():
    m, seen = nn.Linear(1, 1), []
    m.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("pre", prefix, keep)))
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: state.update({prefix + "more": 1}))
    m.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: state.pop(prefix + "more"))
    m.register_load_state_dict_post_hook(lambda module, keys: seen.append(("post", keys.missing_keys)))
    outer = nn.Sequential(m)
    state = outer.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0.more"]
    outer.load_state_dict(state)
    assert seen == [("pre", "0.", False), ("post", [])]
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        m.state_dict()
    handle = nn.ReLU()._register_load_state_dict_pre_hook(lambda *args: seen.append(len(args)))
    handle.remove()


@needs_torch
def test_init_from_torch():
    def build(n):
        m = n.Sequential(n.Conv2d(1, 2, 3), n.BatchNorm2d(2), n.Flatten(), n.Linear(2, 3))
        m.register_buffer("hidden", (tg if n is nn else torch).zeros(2), persistent=False)
        return m

    theirs, mine = build(torch.nn), build(nn)
    theirs(torch.randn(4, 1, 3, 3))
    theirs.hidden += 1
    assert mine.init_from_torch(theirs) is mine
    assert_same_state(mine, theirs)
    assert mine.hidden.tolist() == [1.0, 1.0]
    x = values(2, 1, 3, 3)
    assert_close(mine.eval()(x), theirs.eval()(to_torch(x)), 2e-5)
    theirs[3].weight.data.zero_()  # a copy, not shared memory
    assert mine[3].weight.abs().sum() > 0
    half = nn.Linear(2, 2).init_from_torch(torch.nn.Linear(2, 2).bfloat16())
    assert half.weight.dtype == tg.float32
    with pytest.raises(
        RuntimeError, match=r"size mismatch for weight: copying a param with shape torch.Size\(\[4, 2\]\)"
    ):
        nn.Linear(2, 3).init_from_torch(torch.nn.Linear(2, 4))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias"'):
        nn.Linear(2, 3).init_from_torch(torch.nn.Linear(2, 3, bias=False))
    with pytest.raises(TypeError, match=r"init_from_torch expects a torch.nn.Module, got list"):
        nn.Linear(2, 3).init_from_torch([])


# --- changing the whole tree -----------------------------------------------------------------------------------------


def test_conversion():
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = m[0].weight
    m(tg.ones(3, 2)).sum().backward()
    assert m.double() is m
    assert m[0].weight is weight
    assert weight.dtype == weight.grad.dtype == tg.float64
    assert m[1].running_mean.dtype == tg.float64
    assert m[1].num_batches_tracked.dtype == tg.int64
    assert m(tg.ones(3, 2, dtype=tg.float64)).dtype == tg.float64
    m.to(tg.float32)
    assert weight.dtype == tg.float32
    m.to("cpu", tg.float64).to(tg.zeros(1))
    assert weight.dtype == tg.float32
    assert m.half()[0].bias.dtype == tg.float16
    assert m.float().cpu()[0].bias.dtype == tg.float32
    assert m.type(tg.float64)[1].num_batches_tracked.dtype == tg.float64
    assert weight.requires_grad
    assert weight.is_leaf


def test_meta():
    m = nn.Linear(2, 3, device="meta")
    assert m.weight.is_meta
    with pytest.raises(NotImplementedError, match=r"Please use torch.nn.Module.to_empty"):
        m.to("cpu")
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter in the checkpoint to a meta"):
        m.load_state_dict({"weight": tg.zeros(3, 2), "bias": tg.zeros(3)})
    m.to_empty(device="cpu")
    assert not m.weight.is_meta
    assert m.weight.shape == (3, 2)


def test_train_apply_grad():
    m = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout()))
    assert m.eval() is m
    assert not m[1][0].training
    assert m.train()[1][0].training
    order = []
    m.apply(lambda x: order.append(type(x).__name__))
    assert order == ["Linear", "Dropout", "Sequential", "Sequential"]
    assert m.requires_grad_(False) is m
    assert not m[0].weight.requires_grad
    m.requires_grad_()
    m(tg.ones(1, 2)).sum().backward()
    m.zero_grad(set_to_none=False)
    assert m[0].weight.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    m.zero_grad()
    assert m[0].weight.grad is None


# --- what a model costs ----------------------------------------------------------------------------------------------


def test_models_are_freed_by_reference_counting():
    gc.collect()
    gc.disable()
    try:
        m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.MultiheadAttention(2, 1))
        m[0].register_forward_hook(_nothing)
        m.register_load_state_dict_pre_hook(_nothing)
        m[0](tg.ones(1, 2)).sum().backward()
        dead = [weakref.ref(m), weakref.ref(m[0].weight)]
        del m
        assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


def test_no_warnings_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2))
        nn.CrossEntropyLoss()(m(values(2, 1, 3, 3)), tg.tensor([0, 1])).backward()
        m.load_state_dict(m.state_dict())


@alike
def test_what_takes_the_place_of_what(torch):
    """None, values, tensors, parameters, buffers and modules assigned and registered one after another."""
    found = []

    def put(layer, kind):
        if kind == "buffer":
            return layer.register_buffer("a", torch.ones(1))
        if kind == "registered":
            return layer.register_parameter("a", torch.nn.Parameter(torch.ones(1)))
        if kind == "deleted":
            return delattr(layer, "a")
        layer.a = {
            "None": None, "value": 3, "tensor": torch.ones(2), "parameter": torch.nn.Parameter(torch.ones(1)),
            "module": torch.nn.ReLU(),
        }[kind]  # fmt: skip
        return None

    kinds = ("None", "value", "tensor", "parameter", "module", "buffer", "registered", "deleted")
    for first in kinds[:-1]:
        for second in kinds:
            layer = torch.nn.Module()
            for kind in (first, second, first):
                found.append(error(put, layer, kind).split(":")[0])
                found.append([type(getattr(layer, "a", 0)).__name__, list(layer.state_dict())])
                found.append(
                    [
                        {name: type(value).__name__ for name, value in table.items()}
                        for table in (layer._parameters, layer._buffers, layer._modules)
                    ]
                )
                found.append([name for name, _ in layer.named_parameters()])
    return found
