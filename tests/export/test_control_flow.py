"""`torch.cond` and `torch.while_loop`: as they are, in vmap, exported, and in files that torch reads and writes."""

import io

import numpy as np
import pytest

import tensorgrad
from tensorgrad.export import errors
from tests.support.alike import alike, of_torch

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")


def cond(l, x):
    return l.cond(x.sum() > 0, lambda x: x.sin(), lambda x: {"x": x.cos()}["x"], (x,))


def triangular(l, count, x):
    return l.while_loop(lambda i, s, x: i > 0, lambda i, s, x: (i - 1, s + i * x, x * 1), (count, x * 0, x))


CALLS = {
    "true": lambda l: cond(l, l.tensor([1.0, 2.0])),
    "false": lambda l: cond(l, l.tensor([1.0, -2.0])),
    "a bool": lambda l: l.cond(False, lambda x: x.sin(), lambda x: x.cos(), (l.ones(2),)),
    "one element": lambda l: l.cond(l.ones(1, 1), lambda x: x.sin(), lambda x: x.cos(), (l.ones(2),)),
    "no operands": lambda l: l.cond(l.tensor(True), lambda: l.ones(2), lambda: l.zeros(2)),
    "a structure": lambda l: l.cond(
        l.tensor(True), lambda d: {"s": d["a"] + d["b"][0]}, lambda d: {"s": d["a"] * 2},
        ({"a": l.ones(2), "b": [l.ones(2)]},),
    ),
    "by the operator": lambda l: l.ops.higher_order.cond(
        l.tensor(True), lambda x: (x.sin(),), lambda x: (x.cos(),), (l.ones(2),)
    ),
    "a predicate of two elements": lambda l: l.cond(l.ones(2), lambda x: x.sin(), lambda x: x.cos(), (l.ones(2),)),
    "a predicate that is a text": lambda l: l.cond("a", lambda x: x.sin(), lambda x: x.cos(), (l.ones(2),)),
    "a branch that is a number": lambda l: l.cond(l.tensor(True), 3, lambda x: x.cos(), (l.ones(2),)),
    "operands that are not a tuple": lambda l: l.cond(l.tensor(True), lambda x: x.sin(), lambda x: x.cos(), l.ones(2)),
    "an operand that is a number": lambda l: l.cond(l.tensor(True), lambda x: x, lambda x: x, (3,)),
    "vmap": lambda l: l.vmap(lambda x: cond(l, x))(l.tensor([[1.0, 2.0], [-3.0, 1.0], [0.5, 0.0]])),
    "vmap of another predicate": lambda l: l.vmap(
        lambda x: l.cond(l.tensor(True), lambda x: x.sin(), lambda x: x.cos(), (x,))
    )(l.ones(3, 2)),
    "a loop": lambda l: triangular(l, l.tensor(4), l.tensor([1.0, 2.0])),
    "a loop of no turns": lambda l: triangular(l, l.tensor(0), l.tensor([1.0, 2.0])),
    "a loop with a number": lambda l: l.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, l.ones(2))),
    "a loop by the operator": lambda l: l.ops.higher_order.while_loop(
        lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x * y), (l.tensor(0), l.ones(2)), (l.ones(2) * 2,)
    ),
    "a loop of a text": lambda l: l.while_loop("a", lambda x: (x,), (l.ones(2),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_as_torch(name):
    def called(l):
        try:
            return CALLS[name](l)
        except RuntimeError as error:
            return str(error)

    alike(called)()


def test_gradients():
    def gradients(l):
        w, x = l.tensor([3.0, 4.0], requires_grad=True), l.tensor([1.0, 2.0], requires_grad=True)
        l.cond(l.tensor(True), lambda x: x * w, lambda x: x + w, (x,)).sum().backward()
        return w.grad, x.grad

    alike(gradients)()
    x = tensorgrad.tensor([0.5, -2.0])
    over_batch = tensorgrad.vmap(tensorgrad.func.grad(lambda x: cond(tensorgrad, x)))(x[:, None].mT.reshape(2))
    assert tensorgrad.allclose(over_batch, tensorgrad.tensor([np.cos(0.5), np.sin(2.0)], dtype=tensorgrad.float32))


@pytest.mark.parametrize(
    ("no", "told"),
    [
        (lambda x: x.double(), "expected same dtype but got torch.float32 and torch.float64"),
        (lambda x: x.sum(), "expected same dim but got 1 and 0"),
        (lambda x: x[:1] * 1, r"expected same size but got \[2\] and \[1\]"),
        (lambda x: (x * 1, x * 2), "expected the same number of outputs but got 1 and 2"),
    ],
)
def test_branches_that_do_not_match(no, told):
    class Model(tensorgrad.nn.Module):
        def forward(self, x):
            return tensorgrad.cond(x.sum() > 0, lambda x: x.sin(), no, (x,))

    with pytest.raises(RuntimeError, match=f"When merging two branches' output in torch.cond,  {told}"):
        tensorgrad.export.export(Model(), (tensorgrad.ones(2),))
    if "dim" not in told:
        with pytest.raises(RuntimeError, match=told):
            tensorgrad.vmap(lambda x: tensorgrad.cond(x.sum() > 0, lambda x: x.sin(), no, (x,)))(tensorgrad.ones(3, 2))


@pytest.mark.parametrize(
    ("cond_fn", "body_fn", "error", "told"),
    [
        (lambda i, x: x, lambda i, x: (i + 1, x), RuntimeError, "cond_fn must return a boolean scalar tensor"),
        (lambda i, x: i < 3, lambda i, x: (i + 1,), AssertionError, "same number of elements"),
        (lambda i, x: i < 3, lambda i, x: (i + 1, x[:1]), RuntimeError, "same metadata"),
        (lambda i, x: i < 3, lambda i, x: (i + 1, 3), RuntimeError, "same metadata"),
    ],
)
def test_loops_that_do_not_match(cond_fn, body_fn, error, told):
    with pytest.raises(error, match=told):
        tensorgrad.while_loop(cond_fn, body_fn, (tensorgrad.tensor(0), tensorgrad.ones(2)))


def test_loops_whose_samples_differ_are_refused_in_vmap():
    with pytest.raises(NotImplementedError, match="different numbers of turns"):
        tensorgrad.vmap(lambda n: tensorgrad.while_loop(lambda i: i > 0, lambda i: (i - 1,), (n,)))(
            tensorgrad.arange(3)
        )


# --- exported --------------------------------------------------------------------------------------------------------


def models(l):
    class Layers(l.nn.Module):
        """Branches that use parameters of the module around them, and a constant."""

        def __init__(self):
            super().__init__()
            self.a, self.b = l.nn.Linear(2, 2), l.nn.Linear(2, 2)

        def forward(self, x):
            return l.cond(x.sum() > 0, lambda x: self.a(x).sin(), lambda x: self.b(x) + l.ones(2), (x,)) + 1

    class Nested(l.nn.Module):
        """A branch within a branch, that uses a value of the outermost program."""

        def forward(self, x):
            y = x * 3

            def yes(x):
                return l.cond(x.max() > 1, lambda x: x - y, lambda x: x + y, (x,)), x.sin()

            return l.cond(x.sum() > 0, yes, lambda x: (x * 2, y * 1), (x,))

    class Loop(l.nn.Module):
        def forward(self, x):
            y = x.cos()
            return l.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * y), (l.zeros((), dtype=l.int64), x))

    return Layers, Nested, Loop


GIVEN = ([[1.0, 1.0]], [[-1.0, -2.0]], [[0.5, 0.25]])


def results(l, module, values):
    made = module(l.tensor(values))
    return [t.detach().numpy() for t in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("way", ["program", "decomposed", "file"])
def test_what_is_exported_does_the_same(number, way):
    model = models(tensorgrad)[number]()
    program = tensorgrad.export.export(model, (tensorgrad.ones(1, 2),))
    if way == "decomposed":
        program = program.run_decompositions()
    if way == "file":
        file = io.BytesIO()
        tensorgrad.export.save(program, file)
        program = tensorgrad.export.load(file)
    for values in GIVEN:
        found, expected = (results(tensorgrad, m, values) for m in (program.module(), model))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("number", range(3))
def test_graphs_are_called_as_torchs(number):
    def names(l):
        program = l.export.export(models(l)[number](), (l.ones(1, 2),))
        found = {}

        def look(module, prefix):
            for name, child in module.named_children():
                found[prefix + name] = sum(n.op == "placeholder" for n in child.graph.nodes)
                look(child, f"{prefix}{name}.")

        look(program.graph_module, "")
        nodes = [n for n in program.graph.nodes if str(n.target) in ("cond", "while_loop")]
        return found, [(str(n.target), n.name, len(n.args)) for n in nodes]

    (ours, calls), (theirs, torchs) = names(tensorgrad), of_torch(lambda: names(torch))
    assert list(ours) == list(theirs) and calls == torchs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("direction", ["to torch", "from torch"])
def test_files_are_torchs(number, direction):
    writer, reader = (tensorgrad, torch) if direction == "to torch" else (torch, tensorgrad)

    def both():
        model, file = models(writer)[number](), io.BytesIO()
        writer.export.save(writer.export.export(model, (writer.ones(1, 2),)), file)
        file.seek(0)
        module = reader.export.load(file).module()
        return [[results(writer, model, v), results(reader, module, v)] for v in GIVEN]

    for expected, found in of_torch(both):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_dynamic_batch():
    model = models(tensorgrad)[0]()
    program = tensorgrad.export.export(
        model, (tensorgrad.ones(3, 2),), dynamic_shapes=({0: tensorgrad.export.Dim("batch")},)
    )
    for size in (2, 5):
        x = tensorgrad.randn(size, 2)
        assert tensorgrad.allclose(program.module()(x), model(x))

    class Sized(tensorgrad.nn.Module):
        def forward(self, x):
            return tensorgrad.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x * 1, (x,))

    with pytest.raises(errors.UserError, match="a branch or loop does something else"):
        tensorgrad.export.export(
            Sized(), (tensorgrad.ones(3, 2),), dynamic_shapes=({0: tensorgrad.export.Dim("batch")},)
        )


def written(x):
    x.add_(1)
    return x * 2


@pytest.mark.parametrize(("yes", "told"), [(written, "input mutation"), (lambda x: x, "aliasing")])
def test_what_graphs_may_not_do(yes, told):
    class Model(tensorgrad.nn.Module):
        def forward(self, x):
            return tensorgrad.cond(x.sum() > 0, yes, lambda x: x * 2, (x * 1,))

    with pytest.raises(RuntimeError, match=f"Higher order ops do not support {told}"):
        tensorgrad.export.export(Model(), (tensorgrad.ones(2),))


def test_the_text_has_the_graphs_within():
    text = str(tensorgrad.export.export(models(tensorgrad)[1](), (tensorgrad.ones(1, 2),)))
    for name in ("true_graph_0", "false_graph_0"):
        assert f"        class {name}(torch.nn.Module):" in text
