"""Functions of torch.special beyond PyTorch's own database of tests: against exact values, and torch at the edges.

The exact values are mpmath's (which comes with torch): some of torch's own are good to six digits only.
"""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
mpmath = pytest.importorskip("mpmath", reason="mpmath gives the exact values; it comes with torch")

import tensorgrad as tg  # noqa: E402
from tests.conformance.opdb_bridge import to_tg  # noqa: E402

inf, nan = math.inf, math.nan


def exact(function, *arrays):
    """A function of mpmath at all elements, in 30 digits."""
    with mpmath.workdps(30):
        return np.array([float(function(*map(mpmath.mpf, map(float, row)))) for row in zip(*arrays)])


def ours(function, *arrays):
    """A function of tensorgrad on NumPy arrays."""
    return function(*map(tg.tensor, arrays)).numpy()


def theirs(function, *arrays):
    """A function of torch on NumPy arrays."""
    return function(*map(torch.tensor, arrays)).numpy()


def powers_of_ten(low: float, high: float, count: int = 40):
    """Returns random values from 10**low to 10**high, uniform in their logarithms."""
    return 10 ** np.random.default_rng(0).uniform(low, high, count)


# --- Bessel functions ----------------------------------------------------------------------------------------------

BESSEL = {
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_i0": lambda x: mpmath.besseli(0, x),
    "modified_bessel_i1": lambda x: mpmath.besseli(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.exp(x) * mpmath.besselk(0, x),
    "scaled_modified_bessel_k1": lambda x: mpmath.exp(x) * mpmath.besselk(1, x),
    "spherical_bessel_j0": lambda x: mpmath.sin(x) / x,
}
EDGES = np.array([0.0, -0.0, 1e-300, -1e-300, 1e-20, 1.0, -1.0, 2.0, 4.0, 4.5, -4.5, 26.0, 700.0, inf, -inf, nan])


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_are_exact(name):
    x = np.concatenate([powers_of_ten(-10, 2), [1.9, 2.1, 3.9, 4.1]])
    expected = exact(BESSEL[name], x)
    size = np.where(x > 1, np.minimum(1.0, x**-0.5), np.abs(expected)) if name[:7] == "bessel_" else np.abs(expected)
    assert (np.abs(ours(getattr(tg.special, name), x) - expected) / size).max() < 4e-15
    x = x[x < 30].astype(np.float32)
    single = ours(getattr(tg.special, name), x)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact(BESSEL[name], x), 2e-6)


@pytest.mark.parametrize("name", [*BESSEL, "airy_ai"])
def test_bessel_functions_have_torchs_edges(name):
    for x in (EDGES, EDGES.astype(np.float32)):
        expected = theirs(getattr(torch.special, name), x)
        result = ours(getattr(tg.special, name), x)
        near = 1e-6 if x.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(result, expected, near, near)
        np.testing.assert_array_equal(np.signbit(result[:2]), np.signbit(expected[:2]) if "i1" not in name else False)


def test_waves_keep_their_phase_far_away():
    """For large x, √(πx/2) J0 is cos(x - π/4), without taking π/4 from x."""
    x = np.array([1e10, 1e16, 1e100, 1e300])
    even, odd = np.cos(x), np.sin(x)
    scale = np.sqrt(np.pi * x)
    np.testing.assert_allclose(ours(tg.special.bessel_j0, x) * scale, even + odd, 1e-9)
    np.testing.assert_allclose(ours(tg.special.bessel_y0, x) * scale, odd - even, 1e-9)
    np.testing.assert_allclose(ours(tg.special.bessel_j1, x) * scale, odd - even, 1e-9)
    np.testing.assert_allclose(ours(tg.special.bessel_y1, x) * scale, -even - odd, 1e-9)


def test_airy_function_is_exact():
    x = np.concatenate([-powers_of_ten(-5, 2), powers_of_ten(-5, 2), [-2.6, -2.4, 1.4, 1.6, 0.0]])
    expected = exact(mpmath.airyai, x)
    size = np.where(x < -1, np.abs(x) ** -0.25, np.abs(expected))
    limit = 1e-14 + 4e-16 * np.abs(x) ** 1.5  # its exponent, or phase, is 2/3 x^1.5
    assert (np.abs(ours(tg.special.airy_ai, x) - expected) / size < limit)[expected != 0].all()


def test_large_and_strided_arrays_go_through():
    x = np.random.default_rng(0).uniform(-10, 40, (300, 400))
    for name in ("bessel_j1", "bessel_y0", "modified_bessel_k1", "airy_ai"):
        function = getattr(tg.special, name)
        whole = ours(function, x)
        np.testing.assert_array_equal(function(tg.tensor(x).t()).numpy().T, whole)
        np.testing.assert_array_equal(function(tg.tensor(x)[::7, 3::5]).numpy(), whole[::7, 3::5])


# --- orthogonal polynomials ----------------------------------------------------------------------------------------

POLYNOMIALS = [name for name in dir(torch.special) if "polynomial" in name]
ANGLES = {
    "t": lambda n, t: mpmath.cos(n * t),
    "u": lambda n, t: mpmath.sin((n + 1) * t) / mpmath.sin(t),
    "v": lambda n, t: mpmath.cos((n + mpmath.mpf(0.5)) * t) / mpmath.cos(t / 2),
    "w": lambda n, t: mpmath.sin((n + mpmath.mpf(0.5)) * t) / mpmath.sin(t / 2),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_are_torchs(name):
    x = np.array([-3, -1.5, -1, -0.9, -0.3, 0, 0.25, 0.5, 1, 1.5, 10, inf, -inf])[:, None]
    n = np.array([-2, -0.5, 0, 0.7, 1, 2, 3, 6, 7, 8, 9, 10, 33, 128, 512, 513, 1e19, inf, -inf, nan])
    expected = theirs(getattr(torch.special, name), x, n)
    np.testing.assert_allclose(ours(getattr(tg.special, name), x, n), expected, 1e-8, 1e-8)
    numbers = [d for d in n.tolist() if d < 100]
    for degree in numbers:  # torch loses digits, and overflows, in single precision
        single = ours(lambda x: getattr(tg.special, name)(x, degree), x.astype(np.float32))
        assert single.dtype == np.float32
        wide = ours(getattr(tg.special, name), x, np.array(degree))
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(single, wide.astype(np.float32), 3e-6, 1e-5)


@pytest.mark.parametrize("kind", ANGLES)
def test_chebyshev_polynomials_of_high_degree_are_exact(kind):
    x = np.concatenate([np.linspace(-0.99, 0.99, 12), 1 - powers_of_ten(-15, -3, 8), powers_of_ten(-15, -3, 8) - 1])
    for degree in (9, 20, 1000):
        expected = exact(lambda x: ANGLES[kind](degree, mpmath.acos(x)), x)
        result = ours(getattr(tg.special, f"chebyshev_polynomial_{kind}"), x, np.array(float(degree)))
        assert (np.abs(result - expected) / np.maximum(1, np.abs(expected))).max() < 2e-15 * degree
        mapped = ours(getattr(tg.special, f"shifted_chebyshev_polynomial_{kind}"), (x[:12] + 1) / 2, np.array(degree))
        np.testing.assert_allclose(mapped, result[:12], 0, 1e-12 * degree)


def test_polynomials_of_nan_are_nan_from_degree_one_on():
    for name in POLYNOMIALS:
        values = ours(getattr(tg.special, name), np.array(nan), np.array([-1.0, 0.0, 1.0, 2.0, 20.0, 1000.0]))
        np.testing.assert_array_equal(values, [0, 1, nan, nan, nan, nan])


def test_polynomials_take_numbers_and_mixed_dtypes():
    function = tg.special.legendre_polynomial_p
    assert function(0.5, tg.tensor([2, 3])).tolist() == pytest.approx([-0.125, -0.4375])
    assert function(tg.tensor([0.5, 2.0]), 2).tolist() == pytest.approx([-0.125, 5.5])
    assert function(tg.tensor([1, 2]), tg.tensor([2, 2])).dtype is tg.float32
    assert function(tg.zeros(2, dtype=tg.float64), tg.tensor([2, 2])).dtype is tg.float64
    assert function(tg.zeros(0, 3), 4).shape == (0, 3)
    with pytest.raises(RuntimeError, match="must match the size"):
        function(tg.zeros(2), tg.zeros(3))


@pytest.mark.parametrize(
    "name", ["airy_ai", "bessel_j0", "scaled_modified_bessel_k1", "chebyshev_polynomial_t", "zeta"]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_what_torch_refuses_is_refused(name, dtype):
    for library in (torch, tg):
        x = library.ones(2).to(getattr(library, dtype))
        function = getattr(library.special, name)
        with pytest.raises(NotImplementedError, match="not implemented for"):
            function(x, x) if name in ("chebyshev_polynomial_t", "zeta") else function(x)


def test_none_of_them_has_a_derivative():
    x = tg.ones(2, requires_grad=True)
    assert not tg.special.bessel_j0(x).requires_grad
    assert not tg.special.legendre_polynomial_p(x, x).requires_grad


# --- the incomplete gamma functions --------------------------------------------------------------------------------


def lower(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a, x):
    return mpmath.gammainc(a, x, regularized=True)


@pytest.mark.parametrize("name, truth", [("igamma", lower), ("igammac", upper)])
def test_incomplete_gamma_functions_are_exact(name, truth):
    rng = np.random.default_rng(0)
    a = 10 ** rng.uniform(-8, 5, 60)
    x = a * 10 ** rng.uniform(-1, 1, 60)
    x[::2] = np.abs(a + rng.normal(size=60) * 2 * np.sqrt(a))[::2]  # where neither is small
    x[:9] = 10 ** rng.uniform(-9, 1, 9)
    expected = exact(truth, a, x)
    kept = expected > 1e-250
    function = getattr(tg, name)
    np.testing.assert_allclose(ours(function, a, x)[kept], expected[kept], 1e-12)
    single = ours(function, a.astype(np.float32), x.astype(np.float32))
    expected = exact(truth, a.astype(np.float32), x.astype(np.float32))
    np.testing.assert_allclose(single[expected > 1e-37], expected[expected > 1e-37], 1e-6)


def test_incomplete_gamma_functions_have_torchs_edges():
    edges = np.array([0.0, -0.0, 1e-300, 1e-10, 0.5, 1.0, 2.0, 1e5, 1e100, 1e300, inf, -1.0, -inf, nan])
    for dtype in (np.float64, np.float32):
        a, x = (v.astype(dtype) for v in np.meshgrid(edges, edges))
        np.testing.assert_allclose(ours(tg.igamma, a, x), theirs(torch.igamma, a, x), 1e-5, 1e-30)
        np.testing.assert_allclose(ours(tg.igammac, a, x), theirs(torch.igammac, a, x), 1e-5, 1e-8)
    largest = np.finfo(np.float64).max
    assert ours(tg.igamma, np.array(largest), np.array(largest)) == pytest.approx(0.5)


def test_the_gradient_of_igamma_is_for_its_second_argument():
    for name in ("igamma", "igammac"):
        for library in (torch, tg):
            a = library.tensor([0.5, 1.0, 3.0], dtype=library.float64)
            x = library.tensor([0.2, 2.0, 1.5], dtype=library.float64, requires_grad=True)
            getattr(library, name)(a, x).sum().backward()
            if library is torch:
                expected = x.grad.numpy()
        np.testing.assert_allclose(x.grad.numpy(), expected, 1e-12)
        with pytest.raises(NotImplementedError, match=f"the derivative for '{name}: input' is not implemented"):
            getattr(tg, name)(tg.ones(2, requires_grad=True), tg.ones(2)).sum().backward()
    x = tg.zeros(1, requires_grad=True)  # the density of an exponential variate at 0
    tg.igamma(tg.ones(1), x).backward()
    assert x.grad.item() == 1


def test_igamma_in_place_and_by_its_other_names():
    a, x = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 2.0])
    expected = tg.igamma(a, x)
    assert tg.equal(tg.special.gammainc(a, x), expected) and tg.equal(a.igamma(x), expected)
    assert tg.equal(tg.special.gammaincc(a, x), a.igammac(x))
    assert a.clone().igamma_(x).equal(expected)
    out = tg.empty(2)
    assert tg.igamma(a, x, out=out) is out and out.equal(expected)
    with pytest.raises(NotImplementedError, match="\"igamma_cpu\" not implemented for 'Long'"):
        tg.igamma(tg.tensor([1]), tg.tensor([1]))
    with pytest.raises(TypeError):
        tg.igamma(a, 2.0)


# --- zeta and polygamma --------------------------------------------------------------------------------------------


def test_polygamma_at_negative_halves_and_of_high_order():
    """Where two large sums cancel, and where n! alone would overflow."""
    x = np.array([-0.5, -1.5, -2.5])
    for n in (2, 10, 50):  # the poles around a half cancel in pairs, as reflection says: psi_n(x) = psi_n(1 - x)
        np.testing.assert_allclose(
            ours(lambda x: tg.polygamma(n, x), x), exact(lambda x: mpmath.psi(n, 1 - x), x), 1e-12
        )
    x = np.array([10.0, 30.0])
    expected = exact(lambda x: mpmath.psi(200, x), x)
    np.testing.assert_allclose(ours(lambda x: tg.polygamma(200, x), x), expected, 1e-9)


def test_zeta_at_infinity_is_its_largest_term():
    q = np.array([-0.5, 0.5, 1.0, 1.5, inf, nan])
    np.testing.assert_array_equal(ours(tg.special.zeta, np.full(6, inf), q), [inf, inf, 1, 0, 0, nan])


# --- names ---------------------------------------------------------------------------------------------------------


def test_torch_special_has_all_of_pytorchs_names():
    public = {name for name in dir(torch.special) if callable(getattr(torch.special, name)) and name[0].islower()}
    assert not {name for name in public if not hasattr(tg.special, name)}


def test_softmax_and_its_kin_are_here_too():
    x = torch.randn(2, 3)
    for name in ("softmax", "log_softmax", "logsumexp"):
        expected = getattr(torch.special, name)(x, 1).numpy()
        # (The logarithm of a sum near 1 is near 0: its error is one of numbers near 1.)
        np.testing.assert_allclose(getattr(tg.special, name)(to_tg(x), 1).numpy(), expected, 1e-6, 2**-22)
    assert tg.special.softmax(to_tg(x), 1, dtype=tg.float64).dtype is tg.float64
