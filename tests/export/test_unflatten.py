"""`torch.export.unflatten`: the modules, their names, graphs and results are PyTorch's."""

import io
from importlib import import_module

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.alike import HAS_TORCH, alike


def make(torch):
    """Modules by name: each with its arguments, those to preserve, and dynamic shapes."""
    nn = torch.nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x, *, scale=1.0):
            y = self.linear(x) * scale + self.shift
            return {"out": y, "pair": (x, y + 1)}

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.tail = Inner(), nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))

        def forward(self, x):
            found = self.inner(x, scale=2.0)
            return self.tail(found["out"]), found["pair"][1]

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Inner(), nn.ModuleDict()
            self.c = self.a

        def forward(self, x, given):
            y, z = self.a(x, scale=2.0)["out"], self.a(given["q"])["out"]
            return y + z, self.c(x)["pair"][1]

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = nn.Linear(3, 3), nn.Tanh()

        def forward(self, x):
            return self.layer(self.other(self.layer(x)))

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            self.unused = nn.Linear(2, 2)

        def forward(self, pair, more):
            x, y = pair
            for i, layer in enumerate(self.layers):
                x = layer(x) + (y if i else more["k"][0])
            return [x, {"y": y * 2}]

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.counter, self.layer = Counter(), nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.counter(x))

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x):
            return self.part(x) * x.shape[0]

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Sized()
            self.scale = torch.full((3,), 2.0)

        def forward(self, x):
            return self.inner(x) * self.scale

    class Deep(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.body = Deep(depth - 1) if depth else nn.Linear(3, 3)
            self.norm = nn.LayerNorm(3)

        def forward(self, x):
            return self.norm(self.body(x)) + x

    x = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    y = torch.tensor([[0.0, 1.0, -3.0], [1.5, 1.0, 0.25]])
    return {
        "nested": (Nested(), (x,), ()),
        "nested, kept": (Nested(), (x,), ("inner", "tail")),
        "shared": (Shared(), (x, {"q": y}), ()),
        "twice": (Twice(), (x,), ()),
        "twice, kept": (Twice(), (x,), ("layer",)),
        "pairs": (Pairs(), ((x, y), {"k": [y.clone()]}), ()),
        "pairs, kept": (Pairs(), ((x, y), {"k": [y.clone()]}), ("layers.1",)),
        "counts": (Counts(), (x,), ()),
        "tied": (Tied(), (x,), ()),
        "sized": (Sized(), (x,), ()),
        "constant": (Constant(), (x,), ()),
        "deep": (Deep(3), (x,), ()),
        "deep, kept": (Deep(2), (x,), ("body", "body.body.norm")),
        "sequence": (nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 3))), (x,), ()),
    }


NAMES = list(make(tg))


def fill(module):
    """Gives parameters the same values in both libraries."""
    for i, (_, parameter) in enumerate(sorted(module.named_parameters())):
        parameter.data.copy_((parameter.data * 0).flatten().cumsum(0).add(i % 3 * 0.25 - 0.25).view(parameter.shape))


def tree(torch, name, core=False):
    module, args, kept = make(torch)[name]
    fill(module)
    export = import_module(torch.__name__ + ".export")
    program = export.export(module, args, preserve_module_call_signature=kept)
    program = program.run_decompositions() if core else program
    return module, program, export.unflatten(program), args


def graph_of(module):
    if not hasattr(module, "graph"):
        return None
    return [
        (n.op, n.name, getattr(n.target, "__name__", n.op == "placeholder" or n.target), str(n.args))
        for n in module.graph.nodes
    ]


def modules_and_results(torch, name):
    _, _, found, args = tree(torch, name)
    result = import_module(torch.__name__ + ".utils._pytree").tree_leaves(found(*args))
    return (
        [(path, type(m).__name__) for path, m in found.named_modules(remove_duplicate=False)],
        sorted((key, value.tolist()) for key, value in found.state_dict().items()),  # PyTorch: the order of a set
        [value.detach().numpy().round(5).tolist() for value in result],
    )


@alike
def test_modules_and_results_are_pytorchs(torch):
    return {name: modules_and_results(torch, name) for name in NAMES}


@alike
def test_graphs_are_pytorchs(torch):
    """Those with kept signatures have nodes of another kind for arguments and results."""
    return {name: graphs(torch, name) for name in NAMES if "kept" not in name}


def graphs(torch, name):
    found = tree(torch, name)[2]
    return {path: graph_of(m) for path, m in found.named_modules(remove_duplicate=False)}


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_modules(name, core):
    module, program, found, args = tree(tg, name, core)
    leaves = tg.utils._pytree.tree_leaves
    for _ in range(2):  # a dispatcher begins again
        for a, b in zip(leaves(found(*args)), leaves(program.module()(*args)), strict=True):
            assert tg.allclose(a, b, atol=1e-6)
            break
    assert set(module.state_dict()) <= set(found.state_dict())
    sum(v.sum() for v in leaves(make(tg)[name] and found(*args))).backward()
    used = {id(p) for p in found.parameters() if p.grad is not None}
    assert used


@pytest.mark.parametrize("name", NAMES)
def test_files_keep_the_modules(name):
    _, program, found, args = tree(tg, name)
    file = io.BytesIO()
    tg.export.save(program, file)
    file.seek(0)
    again = tg.export.unflatten(tg.export.load(file))
    assert str(again) == str(found) and again.type_name() == found.type_name()
    for a, b in zip(*(tg.utils._pytree.tree_leaves(m(*args)) for m in (found, again)), strict=True):
        assert tg.equal(a, b)


@pytest.mark.skipif(not HAS_TORCH, reason="torch reads and writes the files")
@pytest.mark.parametrize("name", ["nested", "nested, kept", "shared", "twice, kept", "deep"])
def test_files_of_both(name):
    import torch

    for writer, reader in ((tg, torch), (torch, tg)):
        _, program, found, _ = tree(writer, name)
        file = io.BytesIO()
        writer.export.save(program, file)
        file.seek(0)
        again = reader.export.unflatten(reader.export.load(file))
        assert str(again) == str(found)
        args = make(reader)[name][1]
        one = reader.utils._pytree.tree_leaves(again(*args))
        two = writer.utils._pytree.tree_leaves(found(*make(writer)[name][1]))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)


def test_a_module_can_be_replaced():
    module, _, found, args = tree(tg, "nested, kept")
    module.tail = found.tail = tg.nn.Sequential(tg.nn.Linear(3, 4))
    assert tg.allclose(module(*args)[0], found(*args)[0])
    module.inner.forward = lambda x, scale: {"out": x * scale, "pair": (x, x)}
    found.inner = module.inner
    assert tg.equal(module(*args)[0], found(*args)[0])


def test_sizes_that_vary():
    from tensorgrad.export import Dim, export, unflatten

    module, (x,), _ = make(tg)["constant"]
    for kept in ((), ("inner",), ("inner.part",)):
        program = export(module, (x,), dynamic_shapes=({0: Dim("n")},), preserve_module_call_signature=kept)
        found = unflatten(program)
        for rows in (1, 2, 5):
            given = tg.arange(3.0 * rows).view(rows, 3)
            assert tg.equal(found(given), module(given))
        with pytest.raises(AssertionError, match="Guard failed"):
            found(tg.ones(2, 4))


def test_what_was_shared_is_as_before():
    module, args, _ = make(tg)["shared"]
    tg.export.export(module, args)
    assert module.c is module.a and not module.a._forward_hooks and not module.a._forward_pre_hooks


def test_wrong_arguments():
    module, program, found, (x,) = tree(tg, "twice")
    with pytest.raises(TypeError, match="no flat args adapter"):
        found(x, x)
    with pytest.raises(AttributeError, match="nothing"):
        tg.export.export(module, (x,), preserve_module_call_signature=("nothing",))

    class First(tg.export.FlatArgsAdapter):
        def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
            return input_args[: target_spec.num_leaves]

    assert tg.equal(tg.export.unflatten(program, First())(x, x), found(x))
