"""The fused array kernels (special functions, activations, softmax, norms, attention, indexing) against PyTorch."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrad.kernels.array import activation, attention, blocks, index, norm, softmax, special
from tests.support.compare import array_of, assert_close, to_torch

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")
F = torch.nn.functional
aten = torch.ops.aten

FLOATS = [np.float32, np.float64]
FEW = settings(max_examples=25, deadline=None)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 20.0, 20.5, -20.0, 90.0, -90.0, 1e-30, -1e-30]
LIMITS = [math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def no_warnings():
    """Infinities and nan are legitimate input: no kernel may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def assert_near(mine, theirs, rtol, atol=0.0, what=""):
    """Asserts that the array of a kernel is close to another array, or to a tensor of torch."""
    assert_close(np.asarray(mine), array_of(theirs), rtol, atol=atol, what=what)


def tolerance(dtype, scale=1.0):
    return scale * (3e-6 if dtype == np.float32 else 1e-12)


def laid_out(array, layout):
    """`array`'s values in another memory layout."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "gaps" and array.ndim:
        wide = np.full(array.shape[:-1] + (2 * array.shape[-1],), 7, array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "backwards" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    return array


layouts = st.sampled_from(["plain", "fortran", "gaps", "backwards"])


@st.composite
def float_arrays(draw, values=SPECIAL + LIMITS, low=-8.0, high=8.0, min_dims=0, max_dims=3, max_side=7, min_side=0):
    shape = tuple(draw(st.lists(st.integers(min_side, max_side), min_size=min_dims, max_size=max_dims)))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    array = rng.uniform(low, high, shape).astype(dtype)
    if array.size and values:
        some = rng.random(shape) < 0.3
        array = np.where(some, rng.choice(np.array(values, dtype), shape), array)
    return laid_out(array, draw(layouts))


def untouched(function, *arrays, **params):
    """The result of a kernel, after a check that it left its inputs as they were."""
    before = [None if a is None else np.array(a) for a in arrays]
    result = function(np, *arrays, **params)
    for a, b in zip(arrays, before):
        if a is not None:
            np.testing.assert_array_equal(a, b)
    return result


# ---------------------------------------------------------------- special functions

# name, PyTorch's function, range of the values
UNARY = [
    ("erf", torch.erf, (-6, 6)),
    ("erfc", torch.erfc, (-6, 9)),
    ("erfcx", torch.special.erfcx, (-5, 50)),
    ("erfinv", torch.erfinv, (-1, 1)),
    ("ndtri", torch.special.ndtri, (0, 1)),
    ("log_ndtr", torch.special.log_ndtr, (-30, 6)),
    ("lgamma", torch.lgamma, (0.05, 30)),
    ("digamma", torch.digamma, (2, 40)),
    ("i0", torch.i0, (-40, 40)),
    ("i0e", torch.special.i0e, (-40, 40)),
    ("i1", torch.special.i1, (-40, 40)),
    ("i1e", torch.special.i1e, (-40, 40)),
    ("expit", torch.sigmoid, (-30, 30)),
    ("logit", torch.logit, (0, 1)),
    ("entr", torch.special.entr, (-1, 4)),
    ("sinc", torch.sinc, (-5, 5)),
]


@pytest.mark.parametrize("name,reference,limits", UNARY, ids=[row[0] for row in UNARY])
def test_special_function(name, reference, limits):
    @FEW
    @given(float_arrays(low=limits[0], high=limits[1]))
    def check(x):
        mine = untouched(getattr(special, name), x)
        # lgamma and sinc pass through zero, where only the absolute error is small
        assert_near(mine, reference(to_torch(x)), tolerance(x.dtype, 2), tolerance(x.dtype), x)

    check()


@pytest.mark.parametrize("name,reference,limits", UNARY, ids=[row[0] for row in UNARY])
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_function_on_large_arrays(name, reference, limits, dtype):
    """More than one block, in both orders, gives what the parts give."""
    rng = np.random.default_rng(1)
    x = rng.uniform(*limits, (300, 500)).astype(dtype)
    whole = getattr(special, name)(np, x)
    part = getattr(special, name)(np, np.ascontiguousarray(x[200:204, 17:]))
    np.testing.assert_allclose(whole[200:204, 17:], part, rtol=tolerance(dtype, 2), atol=tolerance(dtype))
    turned = getattr(special, name)(np, x.T)
    np.testing.assert_allclose(turned, whole.T, rtol=tolerance(dtype, 2), atol=tolerance(dtype))
    assert turned.flags.f_contiguous
    low = x[:2, :50].astype(np.float16)
    assert getattr(special, name)(np, low).dtype == np.float16


def ulp_error(mine, exact):
    return np.max(np.abs(mine.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(mine.dtype)))


@pytest.mark.parametrize(
    "name,low,high,single,double",
    [
        ("erf", -5, 5, 4, 5),
        ("erf", 1e-30, 1e-3, 4, 5),
        ("erfc", -4, 9, 5, 10),
        ("lgamma", 1e-6, 3, 12, 6),
        ("lgamma", 3, 1e5, 6, 6),
        ("i0", -40, 40, 6, 12),
        ("digamma", 1e-6, 1.2, 2, 40),
        ("digamma", 2, 1e4, 2, 10),
    ],
)
def test_accuracy_in_last_places(name, low, high, single, double):
    mp = pytest.importorskip("mpmath", reason="mpmath makes the exact values and is not installed")
    exact = {"lgamma": mp.loggamma, "i0": lambda v: mp.besseli(0, v)}.get(name) or getattr(mp, name)
    x = np.random.default_rng(2).uniform(low, high, 1000)
    for dtype, limit in ((np.float32, single), (np.float64, double)):
        values = x.astype(dtype)
        with mp.workdps(40):
            reference = np.array([float(exact(v)) for v in values.tolist()])
        assert ulp_error(getattr(special, name)(np, values), reference) <= limit


def test_float32_against_float64():
    """Functions without an exact reference in the standard library agree with themselves in double precision."""
    rng = np.random.default_rng(3)
    for name, low, high in [
        ("erfinv", -1, 1),
        ("i0", -30, 30),
        ("i1e", 0.1, 80),
        ("log_ndtr", -20, 5),
        ("ndtr", -9, 5),
    ]:
        x = rng.uniform(low, high, 5000).astype(np.float32)
        function = getattr(special, name)
        assert ulp_error(function(np, x), function(np, x.astype(np.float64))) <= 8, name


def test_inverses():
    p = np.random.default_rng(4).uniform(1e-12, 1 - 1e-12, 2000)
    np.testing.assert_allclose(special.ndtr(np, special.ndtri(np, p)), p, rtol=2e-14)
    x = np.linspace(-0.999, 0.999, 2001)
    np.testing.assert_allclose(special.erf(np, special.erfinv(np, x)), x, rtol=2e-15, atol=1e-300)
    np.testing.assert_allclose(special.expit(np, special.logit(np, p)), p, rtol=1e-14)


@pytest.mark.parametrize("dtype", FLOATS)
def test_poles_and_limits(dtype):
    inf, nan = math.inf, math.nan
    table = {
        "lgamma": [(0.0, inf), (-0.0, inf), (-1, inf), (-7, inf), (inf, inf), (-inf, inf), (1, 0), (2, 0), (nan, nan)],
        "digamma": [(0.0, -inf), (-0.0, inf), (-1, nan), (-inf, nan), (inf, inf), (nan, nan)],
        "erfinv": [(1, inf), (-1, -inf), (1.5, nan), (inf, nan), (nan, nan)],
        "erf": [(inf, 1), (-inf, -1), (3e38, 1), (nan, nan)],
        "erfc": [(inf, 0), (-inf, 2), (0, 1), (3e38, 0)],
        "erfcx": [(inf, 0), (-inf, inf), (0, 1)],
        "ndtr": [(inf, 1), (-inf, 0), (0, 0.5)],
        "log_ndtr": [(inf, 0), (-inf, -inf)],
        "log1mexp": [(0, -inf), (-inf, 0), (nan, nan)],
        "log1pexp": [(inf, inf), (-inf, 0), (nan, nan)],
    }
    for name, rows in table.items():
        x = np.array([row[0] for row in rows], dtype)
        np.testing.assert_array_equal(getattr(special, name)(np, x), np.array([row[1] for row in rows], dtype), name)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", FLOATS)
def test_polygamma(n, dtype):
    x = np.random.default_rng(5).uniform(0.3, 40, 500).astype(dtype)
    x = np.concatenate([x, -x[:100] / 4])
    expected = torch.polygamma(n, to_torch(x))
    # PyTorch's own trigamma is good to 1e-9 only, and in float32 to 1e-5 by the reflection
    rtol = max(tolerance(dtype, 3), (1e-4 if dtype == np.float32 else 2e-9) if n == 1 else 0)
    near_pole = np.abs(x - np.rint(x)) < 0.02
    scale = 1e-9 if dtype == np.float64 else 1e-2
    keep = (x > 0) | ~near_pole
    assert_near(special.polygamma(np, n, x)[keep], expected[torch.from_numpy(keep)], rtol, scale if n > 1 else rtol)
    below = special.polygamma(np, n, -x[:20]), special.polygamma(np, n, 1 + x[:20])
    assert all(np.isfinite(b).all() for b in below)


def test_trigamma_and_zeta_values():
    np.testing.assert_allclose(special.polygamma(np, 1, np.array([1.0, 0.5])), [math.pi**2 / 6, math.pi**2 / 2], 1e-15)
    two, four = np.array([2.0]), np.array([4.0])
    np.testing.assert_allclose(special.zeta(np, two, np.ones(1)), math.pi**2 / 6, 1e-15)
    np.testing.assert_allclose(special.zeta(np, four, np.array([-0.5])), math.pi**4 / 6 + 16, 1e-14)
    assert special.zeta(np, np.ones(1), two)[0] == math.inf and np.isnan(special.zeta(np, two / 4, two)[0])
    assert special.zeta(np, two, -two)[0] == math.inf and np.isnan(special.zeta(np, two + 0.5, two - 2.5)[0])


@FEW
@given(float_arrays(min_dims=1, max_dims=1), st.sampled_from(SPECIAL + LIMITS))
def test_xlogy(x, other):
    y = np.full_like(x, other)
    for mine, theirs in ((special.xlogy, torch.xlogy), (special.xlog1py, torch.special.xlog1py)):
        assert_near(untouched(mine, x, y), theirs(to_torch(x), to_torch(y)), tolerance(x.dtype))
        assert_near(untouched(mine, y, x), theirs(to_torch(y), to_torch(x)), tolerance(x.dtype))


def test_logit_clamps():
    x = np.array([0.0, 0.05, 0.5, 0.99, 1.0])
    assert_near(special.logit(np, x, eps=0.1), torch.logit(to_torch(x), 0.1), 1e-13)


@pytest.mark.parametrize("dtype", FLOATS)
def test_select_is_where(dtype):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((2, 90, 91)).astype(dtype)
    a[0], b[1] = np.nan, np.inf
    mask = rng.random((90, 91)) < 0.5
    np.testing.assert_array_equal(blocks.select(np, mask, a, b), np.where(mask, a, b))
    np.testing.assert_array_equal(blocks.select(np, mask.T, a.T, b.T), np.where(mask.T, a.T, b.T))


# ---------------------------------------------------------------- activations

ACTIVATIONS = [
    ("relu", activation.relu, torch.relu, None),
    ("gelu", activation.gelu, F.gelu, activation.gelu_grad),
    (
        "gelu_tanh",
        lambda xp, x: activation.gelu(xp, x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda xp, g, x: activation.gelu_grad(xp, g, x, "tanh"),
    ),
    ("silu", activation.silu, F.silu, activation.silu_grad),
    ("mish", activation.mish, F.mish, activation.mish_grad),
    ("softplus", activation.softplus, F.softplus, activation.softplus_grad),
    (
        "softplus_beta",
        lambda xp, x: activation.softplus(xp, x, 2.0, 3.0),
        lambda x: F.softplus(x, 2.0, 3.0),
        lambda xp, g, x: activation.softplus_grad(xp, g, x, 2.0, 3.0),
    ),
    ("log_sigmoid", activation.log_sigmoid, F.logsigmoid, activation.log_sigmoid_grad),
    ("elu", activation.elu, F.elu, activation.elu_grad),
    (
        "elu_alpha",
        lambda xp, x: activation.elu(xp, x, 0.3),
        lambda x: F.elu(x, 0.3),
        lambda xp, g, x: activation.elu_grad(xp, g, x, 0.3),
    ),
    (
        "selu",
        activation.selu,
        F.selu,
        lambda xp, g, x: activation.elu_grad(xp, g, x, activation.SELU_ALPHA, activation.SELU_SCALE),
    ),
    (
        "celu",
        lambda xp, x: activation.celu(xp, x, 1.5),
        lambda x: F.celu(x, 1.5),
        lambda xp, g, x: activation.elu_grad(xp, g, x, 1.5, 1.0, 1 / 1.5),
    ),
    ("leaky_relu", activation.leaky_relu, F.leaky_relu, activation.leaky_relu_grad),
    (
        "leaky_relu_steep",
        lambda xp, x: activation.leaky_relu(xp, x, 1.5),
        lambda x: F.leaky_relu(x, 1.5),
        lambda xp, g, x: activation.leaky_relu_grad(xp, g, x, 1.5),
    ),
    (
        "leaky_relu_negative",
        lambda xp, x: activation.leaky_relu(xp, x, -0.5),
        lambda x: F.leaky_relu(x, -0.5),
        lambda xp, g, x: activation.leaky_relu_grad(xp, g, x, -0.5),
    ),
    ("hardtanh", activation.hardtanh, F.hardtanh, activation.hardtanh_grad),
    ("hardsigmoid", activation.hardsigmoid, F.hardsigmoid, activation.hardsigmoid_grad),
    ("hardswish", activation.hardswish, F.hardswish, activation.hardswish_grad),
    (
        "threshold",
        lambda xp, x: activation.threshold(xp, x, 0.5, -4.0),
        lambda x: F.threshold(x, 0.5, -4.0),
        lambda xp, g, x: activation.threshold_grad(xp, g, x, 0.5),
    ),
]


@pytest.mark.parametrize("name,forward,reference,backward", ACTIVATIONS, ids=[row[0] for row in ACTIVATIONS])
def test_activation(name, forward, reference, backward):
    # PyTorch's hardsigmoid multiplies by a float32 1/6 even in float64
    rtol = {np.dtype(d): max(tolerance(d), 1e-7 if name == "hardsigmoid" else 0) for d in FLOATS}

    def compare(x, seed, finite):
        # float64 is the better oracle: PyTorch's float32 gelu is off by 1e-4 of itself at -3 and nan at inf
        t = to_torch(x.astype(np.float64), requires_grad=True)
        expected = reference(t)
        atol = tolerance(x.dtype, 0.1)
        assert_near(untouched(forward, x), expected.to(to_torch(x).dtype), rtol[x.dtype], atol, x)
        if backward is None or not finite:
            return
        g = np.random.default_rng(seed).standard_normal(x.shape).astype(x.dtype)
        expected.backward(to_torch(g.astype(np.float64)))
        assert_near(untouched(backward, g, x), t.grad.to(to_torch(x).dtype), rtol[x.dtype], 30 * atol, x)

    @FEW
    @given(float_arrays(values=SPECIAL), st.integers(0, 1000))
    def finite_values(x, seed):
        compare(x, seed, True)

    @FEW
    @given(float_arrays())
    def with_limits(x):
        compare(x, 0, False)

    finite_values()
    with_limits()
    for dtype in FLOATS:
        compare(np.random.default_rng(7).uniform(-30, 30, (70, 1001)).astype(dtype), 8, True)


def test_gradients_from_outputs():
    rng = np.random.default_rng(9)
    for dtype in FLOATS:
        for shape in ((3, 4), (90, 91)):
            x, g = rng.standard_normal((2,) + shape).astype(dtype)
            for forward, reference, backward in (
                (activation.sigmoid, torch.sigmoid, activation.sigmoid_grad),
                (lambda xp, x: xp.tanh(x), torch.tanh, activation.tanh_grad),
                (activation.relu, torch.relu, activation.threshold_grad),
            ):
                t = to_torch(x, True)
                reference(t).backward(to_torch(g))
                assert_near(backward(np, g, forward(np, x)), t.grad, tolerance(dtype), tolerance(dtype))


@pytest.mark.parametrize("n", [8, 9000])
def test_relu_gradient_of_infinities_and_nan(n):
    """A dropped gradient is 0 even when it is infinite; where the output is nan it passes."""
    out = np.resize(np.array([0.0, 1.0, np.nan, 0.0], np.float32), n)
    g = np.resize(np.array([np.inf, np.inf, 2.0, np.nan], np.float32), n)
    expected = np.resize(np.array([0.0, np.inf, 2.0, 0.0], np.float32), n)
    np.testing.assert_array_equal(activation.threshold_grad(np, g, out), expected)


def test_activations_of_two_byte_floats():
    x = np.linspace(-4, 4, 33).astype(np.float16)
    for name, forward, reference, _ in ACTIVATIONS:
        assert_near(forward(np, x), reference(to_torch(x)), 2e-3, 1e-3, name)


# ---------------------------------------------------------------- softmax family


@st.composite
def array_and_dim(draw, **kwargs):
    x = draw(float_arrays(min_dims=1, **kwargs))
    return x, draw(st.integers(0, x.ndim - 1))


@pytest.mark.parametrize(
    "forward,backward,reference",
    [
        (softmax.softmax, softmax.softmax_grad, torch.softmax),
        (softmax.log_softmax, softmax.log_softmax_grad, torch.log_softmax),
    ],
    ids=["softmax", "log_softmax"],
)
def test_softmax(forward, backward, reference):
    def compare(x, dim):
        t = to_torch(x, True)
        expected = reference(t, dim)
        mine = untouched(forward, x, dim=dim)
        size = max(1.0, float(np.abs(x).max(initial=0)))
        assert_near(mine, expected, tolerance(x.dtype), tolerance(x.dtype) * size, (x, dim))
        g = np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)
        expected.backward(to_torch(g))
        assert_near(untouched(backward, g, mine, dim=dim), t.grad, tolerance(x.dtype), tolerance(x.dtype, 10), (x, dim))

    @FEW
    @given(array_and_dim(values=SPECIAL, min_side=0))
    def finite(pair):
        compare(*pair)

    @FEW
    @given(array_and_dim(values=SPECIAL + LIMITS + [-math.inf] * 20))
    def limits(pair):
        x, dim = pair
        assert_near(forward(np, x, dim), reference(to_torch(x), dim), tolerance(x.dtype), tolerance(x.dtype), (x, dim))

    finite()
    limits()
    rng = np.random.default_rng(2)
    for dtype in FLOATS:
        for shape, dim in (((5, 300, 70), 2), ((5, 300, 70), 1), ((5, 300, 70), 0), ((90, 1000), 1)):
            for scale in (1, 300):  # without and with a shift by the row's maximum
                x = (rng.standard_normal(shape) * scale).astype(dtype)
                compare(x, dim)
                x[1] = -np.inf
                x[:, 2] = -np.inf
                assert_near(forward(np, x, dim), reference(to_torch(x), dim), tolerance(dtype), tolerance(dtype, 100))
    low = np.linspace(-2, 2, 8).astype(np.float16).reshape(2, 4)
    assert_near(forward(np, low, 1), reference(to_torch(low), 1), 2e-3, 1e-3)
    point = np.array(3.0)
    assert_near(forward(np, point, 0), reference(to_torch(point), 0), 0)


@FEW
@given(float_arrays(values=SPECIAL + LIMITS + [-math.inf] * 9, min_dims=1), st.booleans(), st.integers(0, 6))
def test_logsumexp(x, keepdim, pick):
    dims = tuple(d for d in range(x.ndim) if pick >> d & 1) or (0,)
    expected = torch.logsumexp(to_torch(x), dims, keepdim)
    assert_near(
        untouched(softmax.logsumexp, x, dims=dims, keepdim=keepdim), expected, tolerance(x.dtype), tolerance(x.dtype)
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 2), (5,), (3, 4, 2), (2, 3, 2, 5), (400, 300), (0, 3), (6, 7, 900)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignore", [None, -100, 1])
def test_cross_entropy(dtype, shape, weighted, smoothing, ignore):
    rng = np.random.default_rng(3)
    classes = shape[1] if len(shape) > 1 else shape[0]
    rest = shape[:1] + shape[2:] if len(shape) > 1 else ()
    x = rng.standard_normal(shape).astype(dtype) * 3
    target = np.asarray(rng.integers(0, classes, rest))
    if ignore == -100 and rest and rest[0]:
        target[0] = -100
    weight = rng.uniform(0.2, 2, classes).astype(dtype) if weighted else None
    ignore = -100 if ignore is None else ignore
    w = None if weight is None else to_torch(weight)
    losses, exps, sums, total = untouched(
        softmax.cross_entropy, x, target, weight, ignore_index=ignore, label_smoothing=smoothing
    )
    t = to_torch(x, True)
    expected = F.cross_entropy(t, to_torch(target), w, ignore_index=ignore, label_smoothing=smoothing, reduction="none")
    assert_near(losses, expected, tolerance(dtype), tolerance(dtype))
    mean = F.cross_entropy(to_torch(x), to_torch(target), w, ignore_index=ignore, label_smoothing=smoothing)
    with np.errstate(all="ignore"):
        assert_near(np.asarray(losses.sum() / np.asarray(total, dtype)), mean, tolerance(dtype, 10))
    g = np.asarray(rng.standard_normal(rest).astype(dtype))
    expected.backward(to_torch(g))
    mine = untouched(
        softmax.cross_entropy_grad, g, exps, sums, target, weight, ignore_index=ignore, label_smoothing=smoothing
    )
    assert_near(mine, t.grad, tolerance(dtype), tolerance(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 2), (5,), (3, 4, 2), (400, 30), (0, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll(dtype, shape, weighted):
    rng = np.random.default_rng(4)
    classes = shape[1] if len(shape) > 1 else shape[0]
    rest = shape[:1] + shape[2:] if len(shape) > 1 else ()
    logp = softmax.log_softmax(np, rng.standard_normal(shape).astype(dtype), min(1, len(shape) - 1))
    target = np.asarray(rng.integers(0, classes, rest))
    if rest and rest[0]:
        target[-1] = -100
    weight = rng.uniform(0.2, 2, classes).astype(dtype) if weighted else None
    t = to_torch(logp, True)
    expected = F.nll_loss(t, to_torch(target), None if weight is None else to_torch(weight), reduction="none")
    losses, weights = untouched(softmax.nll, logp, target, weight)
    assert_near(losses, expected, tolerance(dtype))
    ones = np.ones(classes, dtype) if weight is None else weight
    np.testing.assert_array_equal(weights, np.where(target == -100, 0, ones[np.maximum(target, 0)]))
    g = np.asarray(rng.standard_normal(rest).astype(dtype))
    expected.backward(to_torch(g))
    assert_near(softmax.nll_grad(np, g, logp.shape, target, weights), t.grad, tolerance(dtype))


def test_cross_entropy_of_infinite_logits():
    x = np.array([[1.0, -np.inf], [-np.inf, -np.inf], [np.inf, 0.0], [np.nan, 1.0], [0.0, -np.inf]], np.float32)
    for dtype in FLOATS:
        for target in ([0, 0, 1, 1, 1], [0, -100, -100, -100, 0]):
            target = np.array(target)
            losses, exps, sums, _ = softmax.cross_entropy(np, x.astype(dtype), target)
            t = to_torch(x.astype(dtype), True)
            expected = F.cross_entropy(t, to_torch(target), reduction="none")
            assert_near(losses, expected, tolerance(dtype))
            expected.backward(torch.ones(5, dtype=t.dtype))
            mine = softmax.cross_entropy_grad(np, np.ones(5, dtype), exps, sums, target)
            assert_near(mine, t.grad, tolerance(dtype))


def test_cross_entropy_of_two_byte_floats():
    x = np.linspace(-2, 2, 12).reshape(4, 3).astype(np.float16)
    target = np.array([0, 1, 2, 0])
    losses, exps, sums, _ = softmax.cross_entropy(np, x, target)
    t = to_torch(x, True)
    expected = F.cross_entropy(t, to_torch(target), reduction="none")
    assert_near(losses, expected, 2e-3, 1e-3)
    expected.backward(torch.ones(4, dtype=torch.float16))
    assert_near(softmax.cross_entropy_grad(np, np.ones(4, np.float16), exps, sums, target), t.grad, 2e-3, 1e-3)


@pytest.mark.parametrize("bad", [3, -1, -3])
@pytest.mark.parametrize("n", [2, 100])
def test_target_out_of_range(bad, n):
    x, target = np.zeros((n, 3), np.float32), np.zeros(n, np.int64)
    target[1] = bad
    for kernel in (softmax.cross_entropy, softmax.nll):
        with pytest.raises(IndexError, match=f"^Target {bad} is out of bounds.$"):
            kernel(np, x, target)


# ---------------------------------------------------------------- normalisation


def gradients(output, inputs, g):
    return torch.autograd.grad(output, inputs, to_torch(g))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(
    "shape,count", [((4, 8), 1), ((3, 4, 5), 2), ((7,), 1), ((2, 1), 1), ((300, 400), 1), ((0, 3), 1), ((2, 3, 0), 1)]
)
def test_layer_and_rms_norm(dtype, affine, shape, count):
    rng = np.random.default_rng(5)
    axes, normal = tuple(range(len(shape) - count, len(shape))), shape[len(shape) - count :]
    for layout in ("plain", "gaps", "fortran"):
        x = laid_out((rng.standard_normal(shape) * 2 + 1).astype(dtype), layout)
        g = rng.standard_normal(shape).astype(dtype)
        w, b = rng.standard_normal((2,) + normal).astype(dtype) if affine else (None, None)
        t = to_torch(x, True)
        tw, tb = (to_torch(w, True), to_torch(b, True)) if affine else (None, None)
        inputs = (t, tw, tb) if affine else (t,)
        tol = tolerance(dtype, 10)
        expected = torch.native_layer_norm(t, list(normal), tw, tb, 1e-5)
        y, mean, rstd = untouched(norm.layer_norm, x, axes, w, b)
        for mine, theirs in zip((y, mean, rstd) if x.size else (y,), expected):
            assert_near(mine, theirs, tol, tol)
        assert mean.shape == rstd.shape == expected[1].shape
        need = (True, affine, affine)
        mine = untouched(norm.layer_norm_grad, g, x, mean, rstd, w, axes, need=need)
        for m, e in zip(mine, gradients(expected[0], inputs, g)):
            assert_near(m, e, tol, tol * 10)
        assert norm.layer_norm_grad(np, g, x, mean, rstd, w, axes, need=(False,) * 3) == (None, None, None)
        only = norm.layer_norm_grad(np, g, x, mean, rstd, w, axes, need=(False, True, True))
        assert only[0] is None and (not affine or np.array_equal(only[1], mine[1]))

        expected = F.rms_norm(t, normal, tw, eps=1e-6)
        y, rrms = untouched(norm.rms_norm, x, axes, w, eps=1e-6)
        assert_near(y, expected, tol, tol)
        mine = untouched(norm.rms_norm_grad, g, x, rrms, w, axes, need=(True, affine))
        for m, e in zip(mine, gradients(expected, inputs[:2], g)):
            assert_near(m, e, tol, tol * 10)


def test_rms_norm_default_eps():
    x = np.full((2, 3), 1e-4, np.float32)
    assert_near(norm.rms_norm(np, x, (1,), None, np.finfo(x.dtype).eps)[0], F.rms_norm(to_torch(x), (3,)), 1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(8, 4), (3, 4, 5), (2, 3, 4, 5), (20, 30, 10, 11), (1, 2, 3)])
def test_batch_norm(dtype, affine, training, shape):
    rng = np.random.default_rng(6)
    x = laid_out((rng.standard_normal(shape) * 2 + 1).astype(dtype), "gaps" if affine else "plain")
    g = rng.standard_normal(shape).astype(dtype)
    c = shape[1]
    w, b = rng.standard_normal((2, c)).astype(dtype) if affine else (None, None)
    running = rng.standard_normal(c).astype(dtype), rng.uniform(0.5, 2, c).astype(dtype)
    t = to_torch(x, True)
    tw, tb = (to_torch(w, True), to_torch(b, True)) if affine else (None, None)
    their_running = [to_torch(r) for r in running]
    expected = F.batch_norm(t, *their_running, tw, tb, training, 0.1, 1e-5)
    y, mean, rstd, var = untouched(norm.batch_norm, x, w, b, *running, training=training)
    tol = tolerance(dtype, 10)
    assert_near(y, expected, tol, tol)
    if training:
        new = norm.updated_running(*running, mean, var, x.size // c, 0.1)
        for mine, theirs in zip(new, their_running):
            assert_near(mine, theirs, tol, tol)
    mine = untouched(norm.batch_norm_grad, g, x, mean, rstd, w, training=training, need=(True, affine, affine))
    for m, e in zip(mine, gradients(expected, (t, tw, tb) if affine else (t,), g)):
        assert_near(m, e, tol, tol * 10)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape,groups", [((2, 6), 3), ((3, 4, 5), 1), ((2, 4, 3, 5), 4), ((10, 32, 20, 20), 8)])
def test_group_norm(dtype, affine, shape, groups):
    rng = np.random.default_rng(7)
    x, g = rng.standard_normal((2,) + shape).astype(dtype)
    x = laid_out(x, "fortran" if affine else "plain")
    w, b = rng.standard_normal((2, shape[1])).astype(dtype) if affine else (None, None)
    t = to_torch(x, True)
    tw, tb = (to_torch(w, True), to_torch(b, True)) if affine else (None, None)
    expected = F.group_norm(t, groups, tw, tb)
    y, mean, rstd = norm.group_norm(np, x, groups, w, b)
    tol = tolerance(dtype, 10)
    assert_near(y, expected, tol, tol)
    assert mean.shape == rstd.shape == (shape[0], groups)
    mine = norm.group_norm_grad(np, g, x, mean, rstd, w, groups, (True, affine, affine))
    for m, e in zip(mine, gradients(expected, (t, tw, tb) if affine else (t,), g)):
        assert_near(m, e, tol, tol * 20)


def test_norms_of_two_byte_floats_keep_the_statistics_that_pytorch_keeps():
    x = np.random.default_rng(8).standard_normal((4, 6)).astype(np.float16)
    y, mean, rstd = norm.layer_norm(np, x, (1,))
    assert_near(y, F.layer_norm(to_torch(x), (6,)), 2e-3, 2e-3)
    assert mean.dtype == rstd.dtype == np.float16  # without parameters the input's dtype
    _, *statistics = norm.layer_norm(np, x, (1,), np.ones(6, np.float32))
    assert {s.dtype for s in statistics} == {np.dtype("float32")}
    assert norm.layer_norm_grad(np, x, x, mean, rstd, None, (1,))[0].dtype == np.float16
    assert norm.batch_norm(np, x, None, None, None, None, True)[0].dtype == np.float16
    assert norm.group_norm(np, x, 2)[0].dtype == np.float16


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float", "batched", "keys"])
@pytest.mark.parametrize(
    "lead,rows,keys,width,value_width", [((), 3, 4, 2, 5), ((2, 3), 6, 6, 4, 4), ((2, 9), 160, 130, 8, 8)]
)
def test_attention(dtype, kind, lead, rows, keys, width, value_width):
    rng = np.random.default_rng(9)
    q = rng.standard_normal(lead + (rows, width)).astype(dtype)
    k = rng.standard_normal(lead + (keys, width)).astype(dtype)
    v = rng.standard_normal(lead + (keys, value_width)).astype(dtype)
    g = rng.standard_normal(lead + (rows, value_width)).astype(dtype)
    mask = None
    if kind == "bool":
        mask = rng.random((rows, keys)) < 0.6
        mask[1] = False  # a query that may look at nothing
    elif kind == "float":
        mask = rng.standard_normal((rows, keys)).astype(dtype)
        mask[0, 0] = -np.inf
    elif kind == "batched":
        mask = rng.random(lead[:1] + (1,) * (len(lead) > 1) + (rows, keys)) < 0.7
    elif kind == "keys":
        mask = np.arange(keys) < keys - 1
    causal = kind == "causal"
    out, logs = untouched(attention.attention, q, k, v, mask, is_causal=causal)
    inputs = [to_torch(a, True) for a in (q, k, v)]
    their_mask = None
    if mask is not None:
        their_mask = to_torch(mask if mask.ndim > 1 else np.broadcast_to(mask, (rows, keys)))
    if kind == "float":
        their_mask.requires_grad_()
    expected = F.scaled_dot_product_attention(*inputs, their_mask, is_causal=kind == "causal")
    tol = tolerance(dtype, 10)
    assert_near(out, expected, tol, tol)
    assert logs.shape == out.shape[:-1]
    need = (True, True, True, kind == "float")
    mine = untouched(attention.attention_grad, g, q, k, v, out, logs, need=need, is_causal=causal, mask=mask)
    theirs = gradients(expected, inputs + ([their_mask] if kind == "float" else []), g)
    for m, e in zip(mine[:3], theirs):
        assert_near(m, e, tol, tol)
    if kind == "float":
        assert_near(mine[3].sum(axis=tuple(range(len(lead)))), theirs[3], tol, tol * 10)


def test_attention_with_dropout_and_broadcast():
    rng = np.random.default_rng(10)
    q, g = rng.standard_normal((2, 2, 3, 5, 4))
    k, v = rng.standard_normal((2, 1, 3, 6, 4))
    drop = (rng.random((2, 3, 5, 6)) < 0.8) / 0.8
    out, logs = attention.attention(np, q, k, v, scale=0.3, dropout_mask=drop)
    tq, tk, tv = (to_torch(a, True) for a in (q, k, v))
    expected = (torch.softmax(0.3 * tq @ tk.transpose(-1, -2), -1) * to_torch(drop)) @ tv
    assert_near(out, expected, 1e-12)
    mine = attention.attention_grad(np, g, q, k, v, out, logs, scale=0.3, dropout_mask=drop)
    theirs = gradients(expected, (tq, tk, tv), g)
    assert_near(mine[0], theirs[0], 1e-11, 1e-13)
    assert_near(mine[1].sum(0, keepdims=True), theirs[1], 1e-11, 1e-13)
    assert_near(mine[2].sum(0, keepdims=True), theirs[2], 1e-11, 1e-13)
    low = attention.attention(np, *(a.astype(np.float16) for a in (q, k, v)))
    assert low[0].dtype == np.float16 and low[1].dtype == np.float32


# ---------------------------------------------------------------- indexing


@st.composite
def gather_case(draw):
    dims = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(dims))
    dim = draw(st.integers(0, max(dims - 1, 0)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    places = tuple(draw(st.integers(0, 6)) if i == dim else draw(st.integers(0, n)) for i, n in enumerate(shape))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.int64]))
    x = laid_out(rng.integers(-9, 9, shape).astype(dtype), draw(layouts)) if dims else np.array(3, dtype)
    idx = np.asarray(rng.integers(0, shape[dim] if dims else 1, places))
    src = rng.integers(-9, 9, tuple(n + draw(st.integers(0, 1)) for n in places)).astype(dtype)
    return x, dim, idx, np.asarray(src)


@settings(max_examples=60, deadline=None)
@given(gather_case(), st.booleans())
def test_gather_and_scatter(case, include_self):
    x, dim, idx, src = case
    t, i, s = to_torch(x), to_torch(idx), to_torch(src)
    assert_near(index.gather(np, x, dim, idx), t.gather(dim, i), 0)
    assert_near(index.scatter_add(np, x, dim, idx, src), t.scatter_add(dim, i, s), 1e-6)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        if reduce == "prod" and x.dtype == np.int64:
            continue
        mine = index.scatter_reduce(np, x, dim, idx, src, reduce, include_self)
        assert_near(mine, t.scatter_reduce(dim, i, s, reduce, include_self=include_self), 1e-5, 0, reduce)
    constant = index.scatter(np, x, dim, idx, 4)
    assert_near(constant, t.scatter(dim, i, 4), 0)
    once = idx[(slice(None),) * dim + (slice(0, 1),)] if idx.ndim else idx  # repeats have no defined order
    assert_near(index.scatter(np, x, dim, once, src), t.scatter(dim, to_torch(once), s), 0)


def test_large_gather_and_scatter():
    rng = np.random.default_rng(11)
    x = rng.standard_normal((90, 80, 3)).astype(np.float32)
    for dim in range(3):
        idx = rng.integers(0, x.shape[dim], (70, 60, 2))
        src = rng.standard_normal((75, 60, 3)).astype(np.float32)
        assert_near(index.gather(np, x, dim, idx), to_torch(x).gather(dim, to_torch(idx)), 0)
        expected = to_torch(x).scatter_add(dim, to_torch(idx), to_torch(src))
        assert_near(index.scatter_add(np, x, dim, idx, src), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("bad", [3, -1])
@pytest.mark.parametrize("n", [1, 40])
def test_index_out_of_range(bad, n):
    x, idx, src = np.zeros((2, 3)), np.full((2, n), 0), np.zeros((2, n))
    idx[1, 0] = bad
    message = f"^index {bad} is out of bounds for dimension 1 with size 3$"
    for call in (
        lambda: index.gather(np, x, 1, idx),
        lambda: index.scatter(np, x, 1, idx, src),
        lambda: index.scatter_add(np, x, 1, idx, src),
        lambda: index.scatter_reduce(np, x, 1, idx, src, "amax"),
        lambda: index.index_add(np, x, 1, idx[1], src),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(IndexError, match=r"^index 5 is out of bounds for dimension 0 with size 2$"):
        index.index_put(np, x, (np.array([0, 5]),), np.zeros(1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(7,), (7, 5), (4, 7, 6), (50, 40)])
@pytest.mark.parametrize("alpha", [1, 2])
def test_index_add(dtype, shape, alpha):
    rng = np.random.default_rng(12)
    x = rng.integers(-9, 9, shape).astype(dtype)
    for dim in range(len(shape)):
        for n in (0, 3, 200):
            idx = rng.integers(0, shape[dim], n)
            src = rng.integers(-9, 9, shape[:dim] + (n,) + shape[dim + 1 :]).astype(dtype)
            expected = to_torch(x).index_add(dim, to_torch(idx), to_torch(src), alpha=alpha)
            assert_near(index.index_add(np, x, dim, idx, src, alpha), expected, 1e-6)


def test_index_put():
    rng = np.random.default_rng(13)
    x = rng.integers(-9, 9, (6, 5, 4)).astype(np.float32)
    rows, columns = np.array([[0, -1], [3, 3]]), np.array([[1, 1], [-5, 2]])
    mask = rng.random((6, 5)) < 0.5
    cases = [
        (rows,),
        (rows, columns),
        (None, columns),
        (rows, None, np.array([1, 1])),
        (mask,),
        (mask[:, 0], np.array(2)),
        (np.zeros((0,), np.int64),),
    ]
    for case in cases:
        at = tuple(slice(None) if i is None else i for i in case)
        values = rng.integers(-9, 9, x[at].shape).astype(np.float32)
        torch_at = [None if i is None else to_torch(i) for i in case]
        for source in (values, np.float32(2) * np.ones((), np.float32)):
            source = np.asarray(source)
            mine = index.index_put(np, x, case, source, True)
            expected = aten._index_put_impl_(to_torch(x), torch_at, to_torch(source), True, False)
            assert_near(mine, expected, 1e-6, what=case)
        one = np.ones((), np.float32)
        assert_near(index.index_put(np, x, case, one), aten.index_put(to_torch(x), torch_at, to_torch(one)), 0)
    assert not np.array_equal(x, index.index_put(np, x, cases[0], np.ones((), np.float32)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows,count,width", [(5, 0, 3), (5, 4, 3), (40, 2000, 8), (3, 2000, 16), (1000, 300, 20)])
@pytest.mark.parametrize("padding", [None, 1])
def test_embedding_grad(dtype, rows, count, width, padding):
    rng = np.random.default_rng(14)
    idx = np.where(rng.random(count) < 0.2, 0, rng.integers(0, rows, count))
    g = rng.standard_normal((count, width)).astype(dtype)
    expected = aten.embedding_dense_backward(
        to_torch(g), to_torch(idx), rows, -1 if padding is None else padding, False
    )
    assert_near(untouched(index.embedding_grad, g, idx, num_rows=rows, padding_idx=padding), expected, 1e-5, 1e-4)
    shaped = index.embedding_grad(np, g.reshape(count, 1, width), idx.reshape(count, 1), rows, padding)
    assert_near(shaped, expected, 1e-5, 1e-4)


def test_accumulation_of_two_byte_floats():
    """As in PyTorch: the gradient of an embedding rounds every sum to float16, and stops growing; others do it once."""
    g = np.full((5000, 1), 0.1, np.float16)
    idx = np.zeros(5000, np.int64)
    once = np.float16(5000 * float(np.float16(0.1)))
    expected = aten.embedding_dense_backward(to_torch(g), to_torch(idx), 2, -1, False)[0, 0].item()
    assert expected == 256 == index.embedding_grad(np, g, idx, 2)[0, 0]
    assert once == index.scatter_add(np, np.zeros(2, np.float16), 0, idx, g[:, 0])[0]
    assert once == index.index_add(np, np.zeros((2, 1), np.float16), 0, idx, g)[0, 0]
