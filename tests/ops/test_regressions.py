"""What random programs over both libraries once told apart: each row is run under tensorgrad and under torch.

A row is an expression, or statements that leave their result in `r`, over `torch`, `F`, `np` and `x`: the matrix
[[1., -2., 3.], [0., 4., -5.]] in double precision, which requires grad.
"""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import assert_alike, plain

torch = pytest.importorskip("torch", reason="torch says what is expected")

ACTIVATIONS = ("F.relu", "torch.relu", "F.relu6", "F.leaky_relu", "F.hardtanh", "F.hardshrink", "F.softshrink",
               "F.elu", "F.selu", "F.celu", "F.silu", "F.gelu", "F.softplus", "F.mish", "F.hardswish",
               "(lambda a: F.threshold(a, 1., 2.))")  # fmt: skip
CONTIGUOUS = ("x.T.softmax(0)", "x.T.log_softmax(1)", "x.T.cumsum(0)", "x.T.cumprod(1)", "x.T.cummax(0)[0]",
              "x.T.logcumsumexp(0)", "y.sum(0)", "y.sum(-1, keepdim=True)", "y.mean(1)", "y.amax(1)", "y.prod(0)",
              "y.var(0)", "y.logsumexp(1)", "y.norm(2, 1)", "y.nansum(0)", "(y > 0).any(0)", "(y > 0).all(1)",
              "x.expand(2, 2, 3).cumsum(1)")  # fmt: skip

EXPRESSIONS = [
    # a gradient of either sign, and once more through it: none, some, or a zero that is there
    *(f"twice({f}, x, {up})" for f in ACTIVATIONS for up in ("x.detach()", "-x.detach()", "torch.ones_like(x)")),
    # where a gradient is nan, only the elements it belongs to are
    "torch.autograd.grad(x.max(), x, torch.tensor(np.nan, dtype=x.dtype))",
    "torch.autograd.grad(x.median(), x, torch.tensor(np.nan, dtype=x.dtype))",
    "torch.autograd.grad(torch.xlogy(x, x.detach() - 1), x, (x > 1).to(x.dtype))",
    # layouts: `view` after these works
    *(f"(lambda y: ({e}).stride())(x.reshape(1, 2, 3).permute(2, 0, 1).repeat(1, 2, 1).transpose(0, 2))"
      for e in CONTIGUOUS),
    "x.topk(1, 1)[0].stride(), x.sort(1, True)[0].stride(), x[:1].sort(0, True)[0].stride()",
    # dtypes
    "torch.einsum('ij,ij->i', x.int(), x.int())",
    "torch.tensor([1j, 0, 1]).bool()",
    "torch.zeros(3, dtype=torch.bool).copy_(torch.tensor([1j, 0, 1]))",
    "torch.full((2,), np.int32(2))",
    "torch.where(x > 0, x.int(), np.float64(2))",
    "x.detach().scatter(0, torch.tensor([[0]]), np.float64(2))",
    "x.int() + np.bool_(True), x - np.bool_(True), np.bool_(True) * x.int()",
    "F.group_norm(torch.empty(2, 1, 0), 1)",
    "torch.lerp(x.half(), x.half(), torch.tensor(2)), torch.lerp(x, x + 1, torch.tensor(0.5))",
]  # fmt: skip

STATEMENTS = {
    "two leaves do not share a gradient that has a graph": """
a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
(a + b).sum().backward(create_graph=True)
a.grad.detach().mul_(3)
r = a.grad, b.grad, a.grad is b.grad, a.grad.stride()""",
    "a gradient has the order of rows": """
x.T.exp().backward(torch.arange(6.0, dtype=x.dtype).reshape(3, 2))
r = x.grad.stride(), x.grad.view(-1)""",
    "and so if it is expanded": """
x.expand(4, 2, 3).movedim(-1, 0).sum(1).backward(torch.ones(3, 2, dtype=x.dtype))
r = x.grad.stride(), x.grad""",
    "a comparison in place is a constant": """
y = x * 2
y[0].ge_(1)
z = x * 3
z.eq_(3)
r = y, torch.autograd.grad(y.sum() + z.sum(), x), z._version""",
    "integers do not come to require grad": """
y = torch.zeros(2, 3, dtype=torch.int64)
y.copy_(x)
y[1] = x[0]
r = y""",
    "a view that is resized as `out=` keeps its memory": """
y = torch.zeros(6)
v = y[2:4]
torch.add(torch.ones(3), 1, out=v)
r = y, v, v.storage_offset()""",
    "a view turned without grad mode remains one": """
v = x.transpose(0, 1)
with torch.no_grad():
    v.t_()
r = torch.autograd.grad((v * v).sum(), x)""",
}
ERRORS = {
    "torch.zeros(3, dtype=torch.uint8).fill_(-1.5)": RuntimeError,
    "torch.full((2,), -1.0, dtype=torch.uint8)": RuntimeError,
    "F.hardtanh(torch.ones(2, dtype=torch.uint8))": RuntimeError,
    "F.softshrink(torch.ones(2, dtype=torch.int64))": NotImplementedError,
    "torch.linalg.cross(x > 0, x > 0)": NotImplementedError,
    "torch.searchsorted(torch.tensor(1.0), torch.ones(2))": RuntimeError,
    "torch.searchsorted(torch.tensor(1.0), torch.tensor(1.0))": RuntimeError,
    "[x.register_post_accumulate_grad_hook(lambda t: t.grad), x.sum().backward()]": RuntimeError,
}


def names(library) -> dict:
    """What a row may use."""

    def twice(function, x, upstream):
        first = library.autograd.grad(function(x), x, upstream, create_graph=True)[0]
        second = library.autograd.grad(first, x, upstream, create_graph=True)[0]
        unrecorded = library.autograd.grad(function(x), x, upstream)[0]
        return first, second, unrecorded

    x = library.tensor([[1.0, -2.0, 3.0], [0.0, 4.0, -5.0]], dtype=library.float64, requires_grad=True)
    return {"torch": library, "F": library.nn.functional, "np": np, "x": x, "twice": twice}


def result_of(library, text: str):
    """Returns the result of an expression, or `r` of statements, as plain values."""
    scope = names(library)
    exec(text if "\n" in text else f"r = {text}", scope)
    return plain(scope["r"])


@pytest.mark.parametrize("text", [*EXPRESSIONS, *(pytest.param(t, id=name) for name, t in STATEMENTS.items())])
@pytest.mark.filterwarnings("ignore")
def test_alike(text):
    """Values, dtypes, whether a gradient is required, and whatever else the row looks at."""
    assert_alike(result_of(tensorgrad, text), result_of(torch, text), 1e-6, text)


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text):
    """The same type of error as torch's."""
    for library in (tensorgrad, torch):
        with pytest.raises(ERRORS[text]):
            result_of(library, text)


@pytest.mark.parametrize("batch", [1, 4, 40])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_gradients_of_cross_entropy_in_every_precision(batch, dtype):
    torch.manual_seed(0)
    scores, target = torch.randn(batch, 7), torch.randint(0, 7, (batch,))
    made = []
    for library in (torch, tensorgrad):
        x = library.tensor(scores.tolist()).to(getattr(library, dtype)).requires_grad_()
        library.nn.functional.cross_entropy(x, library.tensor(target.tolist())).backward()
        assert x.grad.dtype is getattr(library, dtype)
        made.append(x.grad.float().numpy())
    np.testing.assert_allclose(made[1], made[0], rtol=0.02, atol=2e-3 if dtype != "float32" else 1e-6)


@pytest.mark.parametrize("tests", [[2], [2, 5, 1], list(range(20)), []])
@pytest.mark.parametrize("invert", [False, True])
def test_isin_by_comparing_and_by_sorting(tests, invert):
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    for elements in ([[1, 2], [7, 5]], [1.5, 2.0, float("nan")], 2, []):
        found, expected = (
            l.isin(l.tensor(elements), l.tensor(tests, dtype=l.int64), invert=invert) for l in (tensorgrad, torch)
        )
        assert found.tolist() == expected.tolist() and found.shape == expected.shape and found.dtype is tensorgrad.bool


def test_the_third_power_of_large_arrays():
    for size in (5, 8192, 300_001):
        x = tensorgrad.from_numpy(np.random.default_rng(0).standard_normal(size).astype(np.float32))
        expected = (x.numpy().astype(np.float64) ** 3).astype(np.float32)
        np.testing.assert_allclose((x**3).numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(x.clone().pow_(3).numpy(), expected, rtol=1e-6)


def test_powers_of_every_bfloat16():
    """The third power is rounded after each product; the square root is the same of the number 0.5 and of a tensor."""
    bits = np.arange(2**15, dtype=np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32)

    def powers(l):
        x = l.tensor(values).to(l.bfloat16)
        return [f.float().numpy() for f in (x**3, x**2, x**0.5, x ** l.tensor(0.5), x**1.5)]

    for found, expected in zip(powers(tensorgrad), powers(torch), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_square_roots_as_powers():
    """A power of 0.5 given as a tensor is 0 at -0 and inf at -inf; given as a number, it is the square root."""
    numbers = [0.0, -0.0, -1.0, -np.inf, np.inf, 2.0, np.nan]
    exponents = (0.5, -0.5, [0.5], [[0.5], [2.0], [3.0]], [0.5] * 7, [0.5, 2.0, 0.5, 1.0, 0.5, 3.0, -0.5])

    def powers(l, dtype):
        x = l.tensor(numbers, dtype=dtype)
        given = [l.tensor(e, dtype=dtype) for e in exponents]
        found = [x**0.5, x**-0.5, x**2, x**1.5, *(x**e for e in given), x ** given[0].expand(7), x[1] ** given[0]]
        found += [x[1:2] ** given[2], x.reshape(7, 1) ** l.tensor([0.5, 2.0], dtype=dtype), x.clone().pow_(given[0])]
        return [f.double().numpy() for f in found]

    for name in ("float32", "float64", "float16"):
        found, expected = (powers(l, getattr(l, name)) for l in (tensorgrad, torch))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3 if name == "float16" else 1e-6)
            a, b = np.where(np.isnan(b), 0, a), np.where(np.isnan(b), 0, b)
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
