"""Pointwise ops beyond the shared table: operators, in-place forms, limits, complex views, and the words of errors.

Each case is one expression, evaluated by both libraries; they must agree in value or in the exception's type.
"""

import warnings

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.compare import evaluate

torch = pytest.importorskip("torch")


def evaluated(lib, expression: str):
    """Returns the value of an expression as nested lists, with its dtype; or the exception's type."""
    value = evaluate(lib, expression, np=np, leaf=lambda v: leaf(lib, v))
    return type(value).__name__ if isinstance(value, Exception) else plain(value)


def leaf(lib, values):
    """A tensor that requires grad."""
    return lib.tensor(values, requires_grad=True)


def plain(value):
    if isinstance(value, torch.Tensor | tg.Tensor):
        return str(value.dtype), value.tolist()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


def assert_agree(expression: str) -> None:
    expected, actual = evaluated(torch, expression), evaluated(tg, expression)
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        assert actual[0] == expected[0]
        np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-7)
    else:
        assert repr(actual) == repr(expected)


VALUES = """
np.float32(2) * l.ones(2)
np.float64(2) - l.ones(2)
3 < l.tensor([2., 4.])
7 // l.tensor([2., 4.])
7 % l.tensor([2, 4])
1 << l.tensor([2, 4])
1 / l.tensor([2, 4])
2 ** l.tensor([2, 4])
1 - l.tensor([2, 4])
l.tensor([5, -5]).__ifloordiv__(2)
l.tensor([True, False]).__iand__(l.tensor([True, True]))
l.tensor([True]) + l.tensor([True])
l.tensor([1], dtype=l.uint8) - 3
l.tensor([1], dtype=l.int8) + 1000
l.tensor([1], dtype=l.int8) == 1000
l.ones(2) * l.tensor(2., dtype=l.float64)
l.ones(2, dtype=l.float16) + 1.5
l.ones(1).eq(1).logical_not_()
(l.ones(1) == None, l.ones(1) != None, l.ones(1) == "a")
l.tensor([2, 3]) ** l.tensor([-1, 2])
l.tensor([2., 3.]).pow_(2)
l.tensor([1., -2.]).clamp_(-1, l.tensor(0.5))
l.tensor([3., float("nan")]).clamp(max=1)
l.clamp(l.tensor([1, 2]), 1.5)
l.where(l.tensor([True, False]), 1, 2.5)
l.where(l.tensor([True, False]), l.ones(2, dtype=l.float16), 2.5)
l.tensor([1, 2]).masked_fill(l.tensor([True, False]), 1.5)
l.zeros(2, 3).masked_fill_(l.tensor([True, False, True]), 7)
l.sign(l.tensor([float("nan"), -0., 3.]))
l.round(l.tensor([0.5, 1.5, -2.25]), decimals=1)
l.polygamma(2, l.tensor([1.5]))
l.tensor([1.5]).polygamma(2)
l.float_power(l.tensor([2]), 2j)
l.view_as_complex(l.zeros(3, 4, 2).transpose(0, 1)).stride()
l.view_as_real(l.zeros(3, 4, dtype=l.complex64)[:, ::2].t()).stride()
l.real(l.ones(1, dtype=l.complex64)).storage_offset()
l.view_as_real(l.tensor([1 + 2j, 3 - 1j]).imag.mul_(2) * 1j)
F.threshold_(l.tensor([0.5, 2.]), 1, -1)
F.hardtanh_(l.tensor([0.5, 2.]))
F.relu6(l.tensor([5, 7]))
F.prelu(l.tensor([[-1., 1.], [-2., 2.]]), l.tensor([0.5, 0.25]))
(l.manual_seed(1), F.rrelu(l.tensor([-1., 2., -3.]), training=True))[1]
""".strip().splitlines()


@pytest.mark.parametrize("expression", VALUES)
def test_value(expression):
    assert_agree(expression)


GRADIENTS = """
l.autograd.grad((0 ** (x := leaf([0., 1., -1.]))).sum(), x)[0]
l.autograd.grad(((-2) ** (x := leaf([0., 1., -1.]))).sum(), x)[0]
l.autograd.grad((2j ** (x := leaf([0.5]))).abs().sum(), x)[0]
l.autograd.grad(((x := leaf([0., 2.])) ** 0).sum(), x)[0]
l.autograd.grad((x := leaf([-2., 0., 1., 2.])).clamp(0, 1).sum(), x)[0]
l.autograd.grad(l.maximum(x := leaf([1., 2., 2.]), l.tensor([2., 2., 1.])).sum(), x)[0]
l.autograd.grad(l.atan2(x := leaf([0., 1.]), l.tensor([0., 2.])).sum(), x)[0]
l.autograd.grad((x := leaf([0j, 1 + 1j])).angle().sum(), x)[0]
l.autograd.grad((x := leaf([0j, 1 + 1j])).abs().sum(), x)[0]
l.autograd.grad(((x := leaf([1 + 2j])).real * x.imag).sum(), x)[0]
l.autograd.grad(((x := leaf([1., -2.])) * 2).relu_().pow(2).sum(), x)[0]
l.autograd.grad(((x := leaf([1., -2.])) * 2).exp_().sum(), x)[0]
l.autograd.grad(((x := leaf([1., -2.])) * 2).clamp_(-1, 5).sum(), x)[0]
l.autograd.grad(F.elu(((x := leaf([1., -2.])) * 2), inplace=True).sum(), x)[0]
l.autograd.grad(l.zeros(2).masked_fill(l.tensor([True, False]), x := leaf(3.)).sum(), x)[0]
l.autograd.grad(l.zeros(2).lerp_(x := leaf([1., 2.]), 0.25).sum(), x)[0]
l.autograd.grad(((x := leaf([1., 2.])) // 2).sum(), x)[0]
l.autograd.grad(l.div(x := leaf([1., 2.]), 2, rounding_mode="floor").sum(), x)[0]
""".strip().splitlines()


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression):
    assert_agree(expression)


ERRORS = """
l.tensor([1, 2]) ** -1
l.tensor([1]) // 0
l.tensor([1]) % 0
-l.tensor([True])
l.tensor([True]) - l.tensor([True])
1 - l.tensor([True])
l.ones(1) - l.tensor([True])
~l.ones(1)
l.ones(1) & l.ones(1)
l.ones(1) + None
l.ones(1) < None
l.tensor([1j]) < l.tensor([1j])
l.maximum(l.ones(1), 2.0)
l.sign(l.tensor([1j]))
l.tensor([1j]).abs_()
l.tensor([1]).add_(1.5)
l.tensor([1]).exp_()
l.zeros(1).expand(3).add_(1)
l.zeros(2).add_(l.zeros(2, 2))
l.zeros(2).add_(l.zeros(3))
leaf([1.]).add_(1)
l.add(l.tensor([1]), 1, alpha=1.5)
l.clamp(l.ones(1))
l.where(l.ones(1), 1, 2)
l.ones(2).masked_fill(l.tensor([1, 0]), 1)
l.ones(2).masked_fill_(l.ones(3) > 0, 1)
l.ones(2).masked_fill(l.ones(2) > 0, l.ones(2))
l.ones(2).masked_fill(l.ones(2) > 0, 1j)
l.imag(l.ones(1))
l.view_as_complex(l.ones(3))
l.complex(l.ones(1), l.ones(1, dtype=l.float64))
l.polygamma(-1, l.ones(1))
l.hypot(l.tensor([1]), l.tensor([1]))
l.isclose(l.ones(1), l.tensor([1]))
l.lerp(l.ones(1), l.ones(1, dtype=l.float64), 0.5)
l.tensor([1]) + 2 ** 70
F.elu(l.tensor([1]))
F.gelu(l.ones(1), approximate="x")
F.glu(l.ones(3))
F.hardtanh(l.ones(1), 1, -1)
F.softshrink(l.ones(1), -1)
F.prelu(l.ones(2, 3), l.ones(2))
""".strip().splitlines()


@pytest.mark.parametrize("expression", ERRORS)
def test_error(expression):
    assert isinstance(evaluated(torch, expression), str), "PyTorch computes this"
    assert_agree(expression)


def test_tensors_are_keys():
    first, second = tg.ones(1), tg.ones(1)
    assert len({first: 1, second: 2}) == 2


def test_overflow_is_not_an_error():
    """Even for users who turn NumPy's warnings into exceptions; and nothing is written twice."""
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg.tensor([3e38]).mul_(10.0).tolist() == [float("inf")]
        assert tg.tensor([3e38, 1.0]).add_(3e38).tolist()[0] == float("inf")
        assert tg.tensor([100.0]).exp().tolist() == [float("inf")]
        assert tg.sigmoid(tg.tensor([-200.0])).tolist() == [0.0]


@pytest.mark.parametrize("size", [1, 3000, 5000, 70000])
@pytest.mark.parametrize("name", ["relu", "sigmoid", "hardtanh", "softplus", "gelu", "elu", "hardshrink", "silu"])
def test_small_and_large_agree(name, size):
    """Kernels change their way with the number of elements."""
    x = np.random.default_rng(size).normal(size=(1, size)).astype("float32") * 3
    ours, theirs = tg.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    result, expected = getattr(tg.nn.functional, name)(ours), getattr(torch.nn.functional, name)(theirs)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=2e-5, atol=2e-6)
    (result * result).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
