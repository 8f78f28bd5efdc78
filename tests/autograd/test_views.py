"""Views and in-place writes: the same program in both libraries gives the same values, gradients and errors."""

from __future__ import annotations

import inspect
import random
import re

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.autograd import views
from tests.support.compare import assert_close, outcome

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")

LIBRARIES = (torch, tg)


def outcomes(program):
    """Returns what a program returns, or the exception that it raises, under torch and under tensorgrad."""
    return [outcome(program, library) for library in LIBRARIES]


def assert_agree(program, *, message: bool = True) -> None:
    """Asserts that both libraries return the same values (nested in tuples), or raise the same error."""
    expected, actual = outcomes(program)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{expected!r} / {actual!r}"
        if message:
            first = re.split(r"[\n(]", str(expected))[0][:100]
            assert str(actual).startswith(first), f"{expected!r} / {actual!r}"
        return
    assert_close(actual, expected, 1e-10, atol=1e-12)


# --- random programs -------------------------------------------------------------------------------------------------


def a_view(rng: random.Random, x):
    """A random view op that suits the shape of `x`, as a function of a tensor of either library."""
    shape = tuple(x.shape)
    n = len(shape)
    d = rng.randrange(n) if n else 0
    e = rng.randrange(n) if n else 0
    size = shape[d] if n else 1
    start = rng.randrange(size) if size else 0
    length = rng.randint(0, size - start)
    index = tuple(
        rng.choice(
            [
                slice(None),
                slice(rng.randint(-2, 2), None),
                slice(0, m, 2),
                None,
                Ellipsis,
                rng.randrange(-m, m) if m else 0,
            ]
        )
        for m in shape[: rng.randint(1, max(n, 1))]
    )
    if sum(i is Ellipsis for i in index) > 1:
        index = ()
    choices = [
        lambda t: t.view(-1),
        lambda t: t.reshape(-1),
        lambda t: t.transpose(d, e),
        lambda t: t.unsqueeze(rng_dim),
        lambda t: t.squeeze(),
        lambda t: t.squeeze(d),
        lambda t: t.flatten(),
        lambda t: t.narrow(d, start, length),
        lambda t: t.select(d, start),
        lambda t: t[index],
        lambda t: t[start],
        lambda t: t[start : start + 2],
        lambda t: t.diagonal(rng_offset, d, e),
        lambda t: t.unfold(d, min(2, size), 1),
        lambda t: t.unfold(d, min(2, size), 2),
        lambda t: t.permute(order),
        lambda t: t.movedim(d, e),
        lambda t: t.expand(2, *shape),
        lambda t: t.view_as(t),
        lambda t: t.split(1, d)[start],
        lambda t: t.chunk(2, d)[0],
        lambda t: t.unbind(d)[start],
        lambda t: t.tensor_split(2, d)[-1],
        lambda t: t.swapaxes(d, e),
        lambda t: t.detach(),
        lambda t: t.mT,
        lambda t: t.t(),
    ]
    if x.numel() and not torch._debug_has_internal_overlap(x):
        choices += [lambda t: t.as_strided((2, 2), (1, 2), 1), lambda t: t.as_strided((3,), (2,))]
    rng_dim, rng_offset = rng.randint(0, n), rng.randint(-1, 1)
    order = list(range(n))
    rng.shuffle(order)
    return rng.choice(choices)


def a_write(rng: random.Random, x):
    """A random in-place op, as a function of the library, the tensor, and a leaf of size 1 that requires grad."""
    c = rng.choice([-1.5, 0.5, 2.0])
    n = x.dim()
    d = rng.randrange(n) if n else 0
    e = rng.randrange(n) if n else 0
    choices = [
        lambda m, t, w: t.mul_(c),
        lambda m, t, w: t.add_(c),
        lambda m, t, w: t.mul_(w),
        lambda m, t, w: t.sub_(w * w),
        lambda m, t, w: t.copy_(w),
        lambda m, t, w: t.fill_(c),
        lambda m, t, w: t.fill_(w[0]),
        lambda m, t, w: t.zero_(),
        lambda m, t, w: t.exp_(),
        lambda m, t, w: t.mul_(t.clone()),
        lambda m, t, w: t.add_(t.sum()),
        lambda m, t, w: t.__setitem__(0, c),
        lambda m, t, w: t.__setitem__(-1, w),
        lambda m, t, w: t.__setitem__(Ellipsis, w * c),
        lambda m, t, w: t.__setitem__([0], w.expand_as(t[[0]])),
        lambda m, t, w: t.clamp_(-1, 1),
    ]
    if not torch._debug_has_internal_overlap(x):  # where elements share memory, the order of writing decides
        choices += [
            lambda m, t, w: t.__setitem__(t > 0, w[0]),
            lambda m, t, w: t.index_put_((m.tensor([0, 0]),), w.double(), accumulate=True),
            lambda m, t, w: t.masked_fill_(t > 0.5, c),
            lambda m, t, w: t.index_add_(0, m.tensor([0]), t[:1] * w),
            lambda m, t, w: t.scatter_(0, m.tensor([[0]]), c),
            lambda m, t, w: t.tril_(),
        ]
    else:
        choices = [lambda m, t, w: t.fill_(c), lambda m, t, w: t.zero_()]
    reshaping = [
        lambda m, t, w: t.unsqueeze_(0),
        lambda m, t, w: t.squeeze_(),
        lambda m, t, w: t.transpose_(d, e),
        lambda m, t, w: t.t_(),
    ]
    for function in reshaping:
        function.__name__ = "reshapes"
    return rng.choice([*choices, *reshaping])


def described(function) -> str:
    """The text of one of the functions above, with its constants."""
    values = {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    return f"{inspect.getsource(function).strip().rstrip(',')} {values or ''}"


class Machine:
    """One library running a random program: tensors made so far, and the loss that they feed."""

    def __init__(self, library, values):
        self.library = library
        self.leaf = library.tensor(values, dtype=library.float64, requires_grad=True)
        self.weight = library.tensor([1.25], dtype=library.float64, requires_grad=True)
        self.pool = [self.leaf * 1, library.tensor(values, dtype=library.float64), self.leaf]
        self.loss = self.weight.sum() * 0

    def step(self, kind: str, at: int, function, no_grad: bool):
        try:
            with self.library.set_grad_enabled(not no_grad):
                tensor = self.pool[at]
                if kind == "view":
                    self.pool.append(function(tensor))
                elif kind == "write":
                    function(self.library, tensor, self.weight)
                else:
                    self.loss = self.loss + function(tensor)
        except Exception as error:
            return error
        return None


def is_computed(tensor):
    """Whether a tensor has a `grad_fn`; None where asking is an error."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return None


def run_program(seed: int) -> str:
    """Runs a random program in both libraries and compares after every step; returns how it ended."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed).uniform(-1, 1, (3, 4)).round(3).tolist()
    machines = [Machine(library, values) for library in LIBRARIES]
    reference, ours = machines
    steps = []
    for _ in range(rng.randint(3, 12)):
        at = rng.randrange(len(reference.pool))
        kind = rng.choice(["view", "view", "write", "write", "use"])
        x = reference.pool[at]
        if kind == "view":
            function = a_view(rng, x)
        elif kind == "write":
            function = a_write(rng, x)
        else:
            function = rng.choice([lambda t: (t * t).sum(), lambda t: t.exp().sum(), lambda t: t.sum()])
        no_grad = rng.random() < 0.12 and not (kind == "write" and function.__name__ == "reshapes")
        steps.append(f"{kind} pool[{at}] {'(no_grad)' if no_grad else ''} {described(function)}")
        expected, actual = (m.step(kind, at, function, no_grad) for m in machines)
        assert type(expected) is type(actual), f"{steps}: {expected!r} / {actual!r}"
        for i, (e, a) in enumerate(zip(reference.pool, ours.pool, strict=True)):
            assert tuple(e.shape) == tuple(a.shape), f"{steps}, pool[{i}]"
            assert_close(a, e, 1e-9, atol=1e-12, what=f"{steps}, pool[{i}]")
            if e.numel():
                assert e.stride() == a.stride(), f"{steps}, pool[{i}]"
                assert e.storage_offset() == a.storage_offset(), f"{steps}, pool[{i}]"
            assert e.requires_grad == a.requires_grad, f"{steps}, pool[{i}]"
            assert is_computed(e) == is_computed(a), f"{steps}, pool[{i}]"
            assert e._version == a._version, f"{steps}, pool[{i}]: version {a._version}, expected {e._version}"
        if expected is not None and kind == "write":
            break
    ends = []
    for m in machines:
        try:
            total = m.loss
            for t in m.pool:
                total = total + (t * t).sum()
            ends.append(m.library.autograd.grad(total, (m.leaf, m.weight), allow_unused=True))
        except RuntimeError as error:
            ends.append(error)
    expected, actual = ends
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{steps}: {expected!r} / {actual!r}"
        return "error"
    for e, a in zip(expected, actual, strict=True):
        assert (e is None) == (a is None), f"{steps}: {e} / {a}"
        if e is not None:
            assert_close(a, e, 1e-8, atol=1e-10, what="\n".join(steps))
    return "gradients"


@pytest.mark.parametrize("long", [views.LONG, 1])
@pytest.mark.parametrize("block", range(20))
def test_random_programs(block, long, monkeypatch):
    monkeypatch.setattr(views, "LONG", long)  # steps from which on one by strides takes their place: also always
    ends = [run_program(1000 * block + i) for i in range(25)]
    assert "gradients" in ends


# --- views -----------------------------------------------------------------------------------------------------------

SHAPED = [
    "x.view(4, 3)", "x.view(-1)", "x.view(2, -1, 2)", "x.t().view(4, 3)", "x.reshape(2, 6)", "x.t().reshape(2, 6)",
    "x.unsqueeze(0)", "x.unsqueeze(1)", "x.unsqueeze(-1)", "x.t().unsqueeze(1)", "x[:, ::2].unsqueeze(-1)",
    "x.squeeze()",
    "x[:1].squeeze(0)", "x[:1].unsqueeze(1)", "x.transpose(0, 1)", "x.T", "x.mT", "x.permute(1, 0)", "x.movedim(0, 1)",
    "x.expand(2, 3, 4)", "x[:, :1].expand(-1, 5)", "x[0, 0].expand(1, 2)", "x.expand(1, 1, 3, 4)", "x.narrow(1, 1, 2)",
    "x.select(1, 2)", "x.select(0, -1)", "x.diagonal()", "x.diagonal(1)", "x.diagonal(-1, 1, 0)", "x.diagonal(9)",
    "x.unfold(1, 2, 1)", "x.unfold(0, 2, 2)", "x.as_strided((2, 2), (1, 2))", "x[1:].as_strided((2, 2), (1, 2), 1)",
    "x[:, 1:]", "x[1]", "x[1, 2]", "x[..., 1]", "x[:, None]", "x[None, :, None, 1]", "x[::2, 1::2]", "x[1:1]",
    "x[None]", "x[...]", "x[:]", "x[-1, 1:-1]", "x[(slice(None), 2)]", "x.flatten()", "x.ravel()", "x.t().ravel()",
    "x.unflatten(1, (2, -1))", "x.swapaxes(0, 1)", "x.split(2)", "x.split([1, 2])", "x.chunk(2, 1)", "x.chunk(3, 1)",
    "x.unbind(1)", "x.tensor_split(3, 1)", "x.tensor_split((1, 3), 1)", "x.hsplit(2)", "x.vsplit([1])", "x.view_as(x)",
    "m.broadcast_to(x, (2, 3, 4))", "m.atleast_3d(x)", "x[m.tensor(1)]", "x.view(m.int64)", "x.view(m.float32)",
    "x.detach()[1]", "x.mH", "x.adjoint()", "m.broadcast_tensors(x, x[0])", "m.meshgrid(x[0], x[:, 0], indexing='xy')",
]  # fmt: skip


@pytest.mark.parametrize("expression", SHAPED)
def test_geometry(expression):
    """Shape, strides and offset of views are PyTorch's, and they share the memory."""
    found = []
    for m in LIBRARIES:
        x = m.arange(12, dtype=m.float64).view(3, 4)
        views = eval(expression, {"m": m, "x": x})
        views = views if isinstance(views, tuple | list) else (views,)
        for v in views:
            v.zero_() if v.dtype is not m.float64 or 0 not in v.stride() else None
        found.append(([(tuple(v.shape), v.stride(), v.storage_offset() * bool(v.numel())) for v in views], x.tolist()))
    assert found[0] == found[1]


WRONG = [
    "x.view(5)", "x.view(-1, -1)", "x.view(-2, 2)", "x.view(-1, 5)", "x.t().view(12)", "m.empty(0, 3).view(-1, 0)",
    "x.expand(5, 4)", "x.expand(4)", "x.expand(-1, 3, 4)", "x.permute(0, 0)", "x.permute(0, 2)", "x.permute(0)",
    "x.transpose(0, 5)", "x.squeeze(5)", "x.unsqueeze(5)", "x.narrow(0, 2, 5)", "x.narrow(0, 5, 1)",
    "x.narrow(0, 0, -1)",
    "x.select(0, 7)", "x[5]", "x[0, 0, 0]", "x[:, 9]", "x[::-1]", "x[::0]", "x[1.0]", "x['a']", "z[0]", "z[:]",
    "x[m.tensor([5])]", "x[m.tensor([True])]", "x[[0, 1], [0, 1, 2]]", "x[m.tensor([1.0])]", "x[[9]]", "x[:, [9]]",
    "x[m.ones(3, 3, dtype=m.bool)]", "x.diagonal(0, 0, 0)", "x.unfold(0, 5, 1)", "x.unfold(0, 2, 0)",
    "x.as_strided((5, 5), (1, 4))", "x.as_strided((5,), (1, 4))", "x.as_strided((2,), (-1,))", "x.split(0)",
    "x.split(-1)",
    "x.split([1, 1])", "x.chunk(0)", "x.tensor_split(0)", "z.split(1)", "z.unbind()", "x.hsplit(3)", "x[0].vsplit(1)",
    "x.movedim(0, 5)", "x.movedim((0, 0), (0, 1))", "x.flatten(1, 0)", "x.unflatten(0, (2, 2))", "x.flip(0, 0)",
    "x[0].mT", "x.view(2, 2, 3).t()", "x.select(0, 1).tril()", "x.roll((1, 2), 0)", "x.rot90(1, (0, 0))", "x.repeat(2)",
    "m.cat([])", "m.cat([x, x[0]])", "m.cat([x, x[:, :2]])", "m.cat([x, z])", "m.cat(x)", "m.cat([x, 3])",
    "m.stack([])",
    "m.stack([x, x[0]])", "m.stack([x, x], 5)", "m.broadcast_tensors(x, m.ones(3))",
    "x.detach().requires_grad_().resize_(2)",
    "x.gather(0, m.tensor([[5]]))", "x.gather(0, m.tensor([0]))", "x.scatter(0, m.tensor([[5]]), 1.0)",
    "x.index_select(0, m.tensor([5]))", "x.index_add(0, m.tensor([5]), x[:1])", "x.index_copy(0, m.tensor([0]), x[:2])",
    "x.take(m.tensor([50]))", "x.masked_select(x)", "x.masked_scatter(x > -1, x[0])",
    "x.put_(m.tensor([50]), m.ones(1, dtype=m.float64))",
    "m.nn.functional.one_hot(m.tensor([0, 1]), 1)", "m.nn.functional.embedding(m.tensor([5]), x)",
    "m.nn.functional.pad(x, (1,))", "m.nn.functional.pad(x, (4, 4), mode='reflect')",
    "x.select_scatter(x[0, :3], 0, 0)",
    "x.__setitem__(5, 1)", "x.__setitem__(slice(None), m.ones(5))", "x.__setitem__(0, m.ones(2, 4))",
    "x.__setitem__([0, 1], m.ones(3, dtype=m.float64))", "x.__setitem__(0, 'a')", "x.__setitem__(0, None)",
    "x.__setitem__(0, 1j)", "x.__setitem__([0], m.ones(4, dtype=m.int64))", "x.__setitem__([0, 5], 1.0)",
    "x.__setitem__(x > 5, m.ones(2, 6, dtype=m.float64))", "x.expand(2, 3, 4).add_(1)",
    "m.zeros(2, dtype=m.uint8).fill_(300)", "m.zeros(2, dtype=m.int64).__setitem__(0, float('nan'))",
]  # fmt: skip


@pytest.mark.parametrize("expression", WRONG)
def test_errors(expression):
    """Wrong arguments raise PyTorch's exception with its words. Nothing has been written (PyTorch at times has)."""

    def program(m):
        x = m.arange(12, dtype=m.float64).view(3, 4)
        try:
            eval(expression, {"m": m, "x": x, "z": m.tensor(1.0)})
        finally:
            assert m is torch or x.flatten().tolist() == list(range(12))

    assert_agree(program)


# --- indexing --------------------------------------------------------------------------------------------------------

READ = [
    "x[[0, 1]]", "x[[0, -1], [1, 2]]", "x[:, [0, 2]]", "x[[0, 1], :, None]", "x[None, [0, 1]]", "y[[0, 1], :, [0, 1]]",
    "y[0, :, [0, 1]]", "y[[0, 1], 0, :]", "y[:, [0, 1], [0, 1]]", "y[..., [0, 1]]", "y[:, None, [0, 1]]", "x[x > 5]",
    "y[y > 3]", "y[:, y[0, :, 0] > 3]", "y[m.ones(2, 3, dtype=m.bool)]", "y[[True, False]]", "y[[True, False], [0]]",
    "y[m.tensor(1), m.tensor([0, 1])]", "y[1:, [0, 1], None, ::2]", "x[[]]", "x[True]", "x[False]", "x[m.tensor(True)]",
    "x[[[0], [2]], [1, 3]]", "x[[[0, 1], [1, 2]]]", "x[range(2)]", "x[np.array([0, 1])]", "x[np.int64(1)]",
    "x[(0, 1),]",
    "x[m.tensor([0, 1], dtype=m.int32)]", "y[m.tensor([[0], [1]]), m.tensor([0, 1, 1])]", "x[[slice(0, 2)]]",
    "y[:, m.tensor([True, False, True]), m.tensor([0, 3])]", "x[x[:, 0] > 3]", "x[x > 99]", "y[[0, 1], [0, 1], [0, 1]]",
]  # fmt: skip


@pytest.mark.parametrize("expression", READ)
def test_reading(expression):
    """Advanced indexing: values, the first derivative, and the second."""

    def program(m):
        base = m.linspace(-1, 2, 12, dtype=m.float64).requires_grad_()
        x = base.view(3, 4) * 6
        y = m.cat([base, base * 2]).view(2, 3, 4)
        found = eval(expression, {"m": m, "x": x, "y": y, "np": np})
        (first,) = m.autograd.grad((found**3).sum(), base, create_graph=True, allow_unused=True)
        (second,) = m.autograd.grad((first**2).sum(), base, allow_unused=True)
        return found, first, second

    assert_agree(program)


WRITTEN = [
    ("x", "1", "7.0"), ("x", "(1, 2)", "7"), ("x", "slice(1, None)", "w[:2]"), ("x", "(slice(None), 1)", "w[:, 0]"),
    ("x", "[0, 2]", "w[:2]"), ("x", "[0, 2]", "3.0"), ("x", "(slice(None), [0, 2])", "w[:, :2]"), ("x", "x > 5", "0.0"),
    ("x", "x > 5", "w[0, 0]"), ("x", "x > 5", "w.flatten()[:6]"), ("x", "Ellipsis", "w[0]"),
    ("x", "(None, 0)", "w[:1]"),
    ("x", "([0, 1], [1, 2])", "w[0, :2]"), ("x", "(slice(None), x[0] > 1)", "w[:, :2]"), ("x", "True", "3.0"),
    ("x", "0", "w.float()[0]"), ("x", "0", "w[:1].unsqueeze(0)"), ("x", "(Ellipsis, 1)", "w[0, 0]"), ("x", "[]", "5.0"),
    ("x[1:]", "(0, slice(None, None, 2))", "w[0, :2]"), ("x.t()", "[1, 1]", "w[:, :2].t()"),
    ("x", "(0, [0, 0])", "w[0, :2]"),
    ("x", "m.tensor(2)", "x[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "index", "value"), WRITTEN)
@pytest.mark.parametrize("tracked", [False, True])
def test_writing(target, index, value, tracked):
    """Item assignment, with the gradients of what is kept and of what is written."""

    def program(m):
        leaf = m.arange(12, dtype=m.float64).view(3, 4).requires_grad_(tracked)
        w = (m.arange(12, dtype=m.float64).view(3, 4) * -0.5).requires_grad_(tracked)
        x = leaf * 1
        names = {"m": m, "x": x, "w": w}
        eval(target, names)[eval(index, names)] = eval(value, names)
        if not tracked:
            return x, x._version
        return x, m.autograd.grad((x**2).sum(), (leaf, w), allow_unused=True, materialize_grads=True)

    assert_agree(program)


# --- writes through views, under autograd ----------------------------------------------------------------------------

PROGRAMS = {
    "a view of a view": "y = x * 1; y.view(-1)[2:8].view(2, 3)[0].mul_(w); out = y",
    "a write to the base reaches the view": "y = x * 1; v = y[1]; y.mul_(w); out = v",
    "both": "y = x * 1; v = y[1]; u = y[:, 1]; v.mul_(w); u.add_(v[0]); y.exp_(); out = m.cat([u, v])",
    "a detached base": "y = m.zeros(3, 4, dtype=m.float64); v = y[0]; v.copy_(x[1]); out = y",
    "as_strided": "y = x * 1; y.as_strided((2, 2), (5, 1), 1).mul_(w); out = y",
    "as_strided, overlapping": "out = (x * 1).as_strided((3, 3), (1, 1), 2)",
    "as_strided of a transposed base": "y = (x * 1).t().clone(); y.as_strided((2, 2), (1, 2), 1).mul_(w); out = y",
    "as_strided on a part": "y = x * 1; v = y[1:].as_strided((3,), (4,), 0); y.mul_(2); v.mul_(w); out = y",
    "expanded": "y = x * 1; v = y[:, :1].expand(3, 5); y.mul_(w); out = v",
    "unfolded": "y = x * 1; v = y.unfold(1, 2, 1); y.mul_(w); out = v",
    "in-place transpose": "y = x * 1; v = y[0]; y.t_(); y.mul_(w); out = m.cat([y.flatten(), v])",
    "in-place shape of a view": "y = x * 1; v = y.view(12); v.unsqueeze_(0); v.mul_(w); out = y",
    "swapped twice": "y = (x * 1).view(3, 2, 2); v = y[1, 0]; y.transpose_(0, 1); v.mul_(w); out = y",
    "fill": "y = x * 1; y[1:].fill_(w[0]); out = y",
    "zero": "y = x * 1; y[:, 0].zero_(); out = y",
    "index_put": "y = x * 1; y.t().index_put_((m.tensor([0, 0, 1]),), w * x[0, :3], accumulate=True); out = y",
    "masked": "y = x * 1; y[0].masked_fill_(y[0] > 0, 2.0); out = y * y",
    "copy to itself": "y = x * 1; y[1:].copy_(y[:-1].clone()); out = y",
    "split parts are views": "y = x * 1; a, b = y.split(2, 1); out = a * b.sum()",
    "chunks of a chunk": "a, b = (x * 1).chunk(2, 1); c, d = a.chunk(2, 1); out = c * 2 + d",
    "one of many": "out = (x * 1).unbind(1)[2]",
    "a slice of a part": "y = x * 1; out = y.unbind(0)[1][1:]",
    "select_scatter": "out = m.select_scatter(x, w.expand(4), 0, 1)",
    "slice_scatter": "out = m.slice_scatter(x, w.expand(2, 4), 0, 1)",
    "diagonal_scatter": "out = m.diagonal_scatter(x, w.expand(3))",
    "scatter_reduce": "out = x.scatter_reduce(0, m.tensor([[0, 1, 0, 2]]), x[1:2] * w, 'prod', include_self=False)",
    "padding": "p = m.nn.functional.pad; out = p(x, (2, 1), mode='reflect') * p(x, (1, 2), mode='circular')",
    "padding by the outermost": "out = m.nn.functional.pad(x[None, None], (2, -1, 1, 1), mode='replicate')",
    "a cat of views": "y = x * 1; c = m.cat([y[1:], y[:1]]); y.mul_(w); out = c * y",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    """Values, first and second derivatives."""

    def program(m):
        x = m.linspace(-1, 1, 12, dtype=m.float64).view(3, 4).requires_grad_()
        w = m.tensor([1.5], dtype=m.float64, requires_grad=True)
        names = {"m": m, "x": x, "w": w}
        exec(PROGRAMS[name], names)
        out = names["out"]
        first = m.autograd.grad((out**3).sum(), (x, w), create_graph=True, allow_unused=True, materialize_grads=True)
        total = sum((g**2).sum() for g in first)
        second = m.autograd.grad(total, (x, w), allow_unused=True, materialize_grads=True)
        return out, first, second

    assert_agree(program)


FORBIDDEN = {
    "a leaf": "x.mul_(2)",
    "a view of a leaf": "x[0].mul_(2)",
    "an item of a leaf": "x[0] = 1",
    "indices of a leaf": "x[[0]] = 1",
    "in-place shape of a leaf": "x.t_()",
    "a part of several": "a, b = (x * 1).chunk(2); a.mul_(2)",
    "a slice of a part": "(x * 1).unbind()[0][1:].mul_(2)",
    "a part, after its base": "y = x * 1; a, b = y.split(2, 1); y.mul_(2); a.grad_fn",
    "an untracked view": "y = x * 1\nwith m.no_grad(): v = y[0]\nv.mul_(2)",
    "an untracked view's base": "y = x * 1\nwith m.no_grad(): v = y[0]\ny.mul_(2); v.grad_fn",
    "an untracked view of a plain base": "y = m.zeros(3, 4)\nwith m.no_grad(): v = y[0]\nv.mul_(x[0])",
    "saved, then written": "y = x * 1; z = y * y; y[0].mul_(2); z.sum().backward()",
    "saved view, then base written": "y = x * 1; v = y[0]; z = v * v; y.add_(1); z.sum().backward()",
    "saved index, then written": "i = m.tensor([0, 1]); z = (x * 1)[i]; i.add_(1); z.sum().backward()",
    "detached shares the counter": "y = x * 1; z = y.exp(); z.detach()[0].zero_(); z.sum().backward()",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(name):
    def program(m):
        x = m.linspace(-1, 1, 12, dtype=m.float64).view(3, 4).clone().requires_grad_()
        exec(FORBIDDEN[name], {"m": m, "x": x})

    assert_agree(program)
    assert isinstance(outcomes(program)[1], RuntimeError)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("x[0]", "SelectBackward0"), ("x[0, 1]", "SelectBackward0"), ("x[0:2]", "SliceBackward0"),
        ("x[...]", "AliasBackward0"), ("x[None]", "UnsqueezeBackward0"), ("x[[0]]", "IndexBackward0"),
        ("x.unbind()[1]", "UnbindBackward0"), ("x.split(1)[1]", "SplitBackward0"), ("x.chunk(2)[1]", "SplitBackward0"),
        ("x.split([1, 2])[1]", "SplitWithSizesBackward0"), ("x.tensor_split(2)[0]", "SliceBackward0"),
        ("x.squeeze()", "SqueezeBackward0"), ("x.squeeze(0)", "SqueezeBackward1"),
        ("x.narrow(0, 0, 1)", "SliceBackward0"),
        ("x.movedim(0, 1)", "PermuteBackward0"), ("x.T", "PermuteBackward0"), ("x.mT", "TransposeBackward0"),
        ("x.t()", "TBackward0"), ("x.reshape(12)", "ViewBackward0"), ("x.T.reshape(12)", "UnsafeViewBackward0"),
        ("x.unfold(0, 2, 1)", "UnfoldBackward0"), ("x.expand(2, 3, 4)", "ExpandBackward0"),
        ("x.as_strided((2,), (1,))", "AsStridedBackward0"), ("x.diagonal()", "DiagonalBackward0"),
        ("m.cat([x])", "CatBackward0"), ("m.stack([x])", "StackBackward0"), ("x.flip(0)", "FlipBackward0"),
    ],
)  # fmt: skip
def test_names_of_nodes(program, name):
    for m in LIBRARIES:
        x = m.ones(3, 4, requires_grad=True)
        assert eval(program, {"x": x, "m": m}).grad_fn.name() == name


def test_unbind_costs_one_gradient():
    """n parts share one node, so their gradients are joined once and not padded n times."""
    x = tg.ones(100, 3, requires_grad=True)
    parts = (x * 1).unbind()
    assert len({part.grad_fn for part in parts}) == 1
    sum(part.sum() * i for i, part in enumerate(parts)).backward()
    np.testing.assert_array_equal(x.grad.numpy()[:, 0], np.arange(100))
