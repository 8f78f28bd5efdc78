"""Matrix factorizations against torch: what the op database does not reach.

Everything that SciPy does where it is installed is tested with and without it.
"""

import functools
import math

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.array import lapack, ldl, lu
from tests.support.alike import alike
from tests.support.compare import assert_close, normal, outcome

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

DTYPES = ("float32", "float64", "complex64", "complex128")
TOLERANCE = {"float32": 2e-3, "float64": 1e-8, "complex64": 2e-3, "complex128": 1e-8}


@pytest.fixture(params=["scipy", "numpy"])
def routines(request, monkeypatch):
    """SciPy's routines, or none."""
    if request.param == "scipy":
        pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    else:
        for module in (lapack, ldl):
            monkeypatch.setattr(module, "routine", lambda name, dtype: None)


def of_both(*arrays):
    """Returns copies of arrays as torch's tensors and as tensorgrad's."""
    return [torch.from_numpy(a.copy()) for a in arrays], [tg.from_numpy(a.copy()) for a in arrays]


# --- LU ------------------------------------------------------------------------------------------------------------

SHAPES = [
    (1, 1), (3, 3), (2, 5), (5, 2), (0, 0), (2, 0, 3), (0, 3, 3), (2, 3, 12, 12), (90, 3, 3), (100, 2, 4), (45, 45),
    (3, 70, 40), (40, 70),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_factor_has_torchs_pivots(shape, dtype, routines):
    a = normal(*shape, dtype=dtype)
    expected = torch.linalg.lu_factor_ex(torch.from_numpy(a))
    packed, pivots, info = lu.lu_factor(np, a, True)
    assert_close(packed, expected.LU.numpy(), TOLERANCE)
    for found, wanted in ((pivots, expected.pivots), (info, expected.info)):
        assert found.dtype == np.int32 and found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted.numpy())
    np.testing.assert_array_equal(
        lu.permutation(np, pivots, packed), torch.lu_unpack(expected.LU, expected.pivots)[0].numpy()
    )


@pytest.mark.parametrize("shape", [(4, 4), (3, 40, 30), (30, 40), (90, 3, 3)], ids=str)
def test_lu_without_pivoting(shape):
    a = normal(*shape, dtype="float64") + 50 * np.eye(*shape[-2:])
    packed, pivots, info = lu.lu_factor(np, a, False)
    k = min(shape[-2:])
    lower = np.tril(packed[..., :k], -1) + np.eye(shape[-2], k)
    np.testing.assert_allclose(lower @ np.triu(packed[..., :k, :]), a)
    assert (pivots == np.arange(1, k + 1)).all() and not info.any()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("lead", [((), ()), ((2,), (2,)), ((3, 1), (2,)), ((80,), (80,))], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_lu_solve(dtype, lead, adjoint, left, routines):
    a, b = normal(*lead[0], 4, 4, dtype=dtype), normal(*lead[1], *((4, 2) if left else (2, 4)), seed=1, dtype=dtype)
    (a, b), (x, y) = of_both(a, b)
    expected = torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint)
    found = tg.linalg.lu_solve(*tg.linalg.lu_factor(x), y, left=left, adjoint=adjoint)
    assert_close(found, expected, TOLERANCE)


@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve_is_differentiable_twice(adjoint):
    LU, pivots = tg.linalg.lu_factor(tg.from_numpy(normal(2, 3, 3, dtype="complex128")))
    B = tg.from_numpy(normal(3, 2, seed=1, dtype="complex128")).requires_grad_()

    def solve(LU, B):
        return tg.linalg.lu_solve(LU, pivots, B, adjoint=adjoint)

    assert tg.autograd.gradcheck(solve, (LU.requires_grad_(), B))
    assert tg.autograd.gradgradcheck(solve, (LU, B))


@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 4), (4, 2)], ids=str)
def test_lu_is_differentiable_twice(shape):
    A = tg.from_numpy(normal(*shape, dtype="complex128")).requires_grad_()
    assert tg.autograd.gradcheck(lambda A: tg.linalg.lu(A)[1:], (A,))
    assert tg.autograd.gradgradcheck(lambda A: tg.linalg.lu(A)[1:], (A,))


@alike
def test_results_of_the_older_lu(torch):
    A = torch.tensor([[1.0, 2.0], [4.0, 4.0]])
    plain, flagged = torch.lu(A), torch.lu(A, get_infos=True)
    out = torch.empty(0), torch.empty(0, dtype=torch.int32)
    torch.lu(torch.eye(2), out=out)
    unpacked = torch.lu_unpack(*plain, unpack_data=False)
    return type(plain).__name__, type(flagged).__name__, plain, flagged, out, unpacked, A.lu(get_infos=True)


@alike
def test_lu_on_meta(torch):
    A = torch.empty(3, 4, device="meta", requires_grad=True)
    P, L, U = torch.linalg.lu(A, pivot=False)
    (L.sum() + U.sum()).backward()
    factored = torch.linalg.lu_factor(A, pivot=False)
    return [list(x.shape) for x in (P, L, U, *factored, A.grad)]


# --- LDL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hermitian", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 5, 5), (2, 3, 9, 9), (40, 40), (0, 0), (0, 3, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl(dtype, shape, hermitian, routines):
    a = normal(*shape, dtype=dtype)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    a[..., range(shape[-1]), range(shape[-1])] *= 0.1  # asks for blocks of two
    b = normal(*shape[:-1], 2, seed=1, dtype=dtype)
    expected = torch.linalg.ldl_factor_ex(torch.from_numpy(a), hermitian=hermitian)
    packed, pivots, info = ldl.ldl_factor(np, a, hermitian)
    assert_close(packed, expected.LD.numpy(), TOLERANCE)
    np.testing.assert_array_equal(pivots, expected.pivots.numpy())
    np.testing.assert_array_equal(info, expected.info.numpy())
    assert pivots.dtype == info.dtype == np.int32
    solution = ldl.ldl_solve(np, packed, pivots, b, hermitian)
    if a.size:
        assert shape[-1] < 9 or (pivots < 0).any()
        residual = np.abs(a @ solution - b).max() / (np.abs(a).max() * max(1, np.abs(solution).max()))
        assert residual < (1e-4 if TOLERANCE[dtype] > 1e-4 else 1e-12) and solution.dtype == a.dtype


@alike
def test_ldl_solve_broadcasts(torch):
    A = torch.tensor([[0.0, 2.0], [2.0, 1.0]])
    LD, pivots = torch.linalg.ldl_factor(A.expand(3, 2, 2))
    return pivots, torch.linalg.ldl_solve(LD, pivots.long(), torch.tensor([[2.0], [4.0]]))


# --- Householder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 4), (60, 40), (3, 0), (0, 0)], ids=str)
def test_geqrf_and_its_product_are_qr(shape, dtype, routines):
    (a,), (x,) = of_both(normal(*shape, dtype=dtype))
    packed, tau = tg.geqrf(x)
    expected = torch.geqrf(a)
    assert_close(packed, expected.a, TOLERANCE)
    assert_close(tau, expected.tau, TOLERANCE)
    q = tg.linalg.householder_product(packed, tau)
    assert_close(q, torch.linalg.householder_product(*expected), TOLERANCE)
    assert_close(q @ packed[..., : shape[-1], :].triu(), a, TOLERANCE)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (2, 4, 4)], ids=str)
def test_ormqr(shape, transpose, left):
    m, k = shape[-2], min(shape[-2:])
    arrays = normal(*shape, dtype="complex128"), normal(*shape[:-2], k, seed=1, dtype="complex128")
    other = normal(*shape[:-2], *((m, 2) if left else (2, m)), seed=2, dtype="complex128")
    theirs, mine = of_both(*arrays, other)
    expected = torch.ormqr(*theirs, left, transpose)
    assert_close(tg.ormqr(*mine, left, transpose), expected, TOLERANCE)
    inputs = [x.requires_grad_() for x in mine]
    assert tg.autograd.gradcheck(lambda *x: tg.ormqr(*x, left, transpose), inputs)


def test_reflections_of_factor_zero():
    """T of the compact form would be the inverse of a singular matrix."""
    h, tau = tg.geqrf(tg.eye(3, dtype=tg.float64))
    assert not tau.any()
    assert tg.equal(tg.linalg.householder_product(h, tau), tg.eye(3, dtype=tg.float64))


# --- low rank ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 6)], ids=str)
@pytest.mark.parametrize("niter", [0, 2])
def test_low_rank_decompositions_draw_torchs_numbers(shape, niter):
    (a, m), (x, n) = of_both(normal(*shape, dtype="float64"), normal(*shape[-1:], seed=1, dtype="float64"))
    for name, extra in (("svd_lowrank", {}), ("svd_lowrank", {"M": (m, n)}), ("pca_lowrank", {"center": True})):
        results = []
        for library, matrix, i in ((torch, a, 0), (tg, x, 1)):
            library.manual_seed(3)
            keywords = {k: v[i] if isinstance(v, tuple) else v for k, v in extra.items()}
            results.append(getattr(library, name)(matrix, q=3, niter=niter, **keywords))
        (u, s, v), (our_u, our_s, our_v) = results
        assert_close(our_s, s, TOLERANCE)
        ours = our_u @ tg.diag_embed(our_s) @ our_v.mT
        assert_close(ours, u @ torch.diag_embed(s) @ v.mT, TOLERANCE)


@pytest.mark.parametrize("method", ["ortho", "basic"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("generalized", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_lobpcg(dtype, generalized, largest, method):
    m, k = 40, 3
    a = normal(m, m, dtype=dtype)
    a = a @ a.conj().T / m + np.eye(m, dtype=dtype)
    b = np.diag(np.linspace(1, 2, m)).astype(dtype) if generalized else None
    tg.manual_seed(0)
    E, X = tg.lobpcg(tg.from_numpy(a), k=k, B=None if b is None else tg.from_numpy(b), largest=largest, method=method)
    b = np.eye(m) if b is None else b
    values = np.sort(np.linalg.eigvals(np.linalg.solve(b, a)).real)
    tolerance = 1e-4 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(E.numpy(), values[::-1][:k] if largest else values[:k], tolerance, tolerance)
    np.testing.assert_allclose(X.numpy().conj().T @ b @ X.numpy(), np.eye(k), atol=tolerance)
    np.testing.assert_allclose(a @ X.numpy(), b @ X.numpy() * E.numpy(), atol=30 * math.sqrt(tolerance))


def symmetric(n=12):
    a = normal(n, n, dtype="float64")
    return a @ a.T + np.eye(n)


@pytest.mark.parametrize("largest", [True, False])
def test_derivatives_of_lobpcg(largest):
    (a, w, c), (x, v, d) = of_both(
        symmetric(), normal(12, 2, seed=1, dtype="float64"), normal(12, 12, seed=2, dtype="float64")
    )

    def derivatives(library, a, pairs, w, c):
        a = a.requires_grad_()
        values, vectors = pairs(a)
        (first,) = library.autograd.grad((vectors * w).sum(0).pow(2).sum() + values.pow(2).sum(), a, create_graph=True)
        return first, library.autograd.grad((first * c).sum(), a)[0]

    def exact(a):
        values, vectors = torch.linalg.eigh((a + a.mT) / 2)
        values, vectors = (values.flip(-1), vectors.flip(-1)) if largest else (values, vectors)
        return values[:2], vectors[:, :2]

    tg.manual_seed(0)
    found = derivatives(tg, x, lambda a: tg.lobpcg(a, k=2, largest=largest, tol=1e-13), v, d)
    for ours, theirs in zip(found, derivatives(torch, a, exact, w, c), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), 1e-6, 1e-6)
    assert tg.equal(found[0], found[0].mT)


def test_lobpcg_of_stacks_and_with_a_start():
    a = tg.from_numpy(np.stack([symmetric(), 2 * symmetric()]).reshape(1, 2, 12, 12))
    start = tg.from_numpy(normal(1, 2, 12, 3, seed=1, dtype="float64"))
    E, X = tg.lobpcg(a, k=2, X=start, iK=tg.linalg.inv(a[0, 0]), largest=False)
    assert E.shape == (1, 2, 2) and X.shape == (1, 2, 12, 2)
    assert tg.allclose(E, tg.linalg.eigvalsh(a)[..., :2])


def test_a_tracker_watches_lobpcg_and_stops_it():
    seen = []

    def tracker(state):
        seen.append((state.ivars["istep"], tuple(state.X.shape), tuple(state.S.shape), state.R.norm() > 0))
        state.bvars["force_stop"] = state.ivars["istep"] == 3

    tg.lobpcg(tg.from_numpy(symmetric()), k=2, tracker=tracker)
    assert [s[0] for s in seen] == [1, 2, 3]
    assert seen[1][1:3] == ((12, 2), (12, 6)) and all(s[3] for s in seen)


# --- errors --------------------------------------------------------------------------------------------------------


def message(call):
    """Returns the type and message of the exception that a call raises, spelled alike for both libraries."""
    error = outcome(call)
    if not isinstance(error, Exception):
        return "no error"
    text = f"{type(error).__name__.strip('_')}: {error}"
    return text.replace("torch.linalg.", "linalg.").replace(".Did", ". Did")


@alike
def test_errors_of_lu(torch):
    linalg, eye = torch.linalg, torch.eye(3)
    singular = torch.stack([eye, torch.diag(torch.tensor([1.0, 0.0, 1.0]))])
    LU, pivots = linalg.lu_factor(eye + 1)
    calls = [lambda f=f, a=a: f(a) for f in (linalg.lu, linalg.lu_factor, linalg.lu_factor_ex)
             for a in (eye[0], eye[0, 0], eye.long(), eye.half(), eye.bool())]  # fmt: skip
    calls += [
        lambda: linalg.lu_factor(singular),
        lambda: linalg.lu_factor(singular[1]),
        lambda: linalg.lu_factor_ex(singular, check_errors=True),
        lambda: linalg.lu(eye, pivot=False),
        lambda: torch.lu(eye, pivot=False),
        lambda: torch.lu(eye, out=(torch.empty(0),)),
        lambda: linalg.lu_solve(LU, pivots, eye[0]),
        lambda: linalg.lu_solve(LU, pivots, eye[:2]),
        lambda: linalg.lu_solve(LU, pivots, eye[:, :2], left=False),
        lambda: linalg.lu_solve(LU, pivots, eye.double()),
        lambda: linalg.lu_solve(LU[:, :2], pivots, eye),
        lambda: linalg.lu_solve(LU, pivots.expand(2, 3), eye),
        lambda: linalg.lu_solve(LU, pivots * 0, eye),
        lambda: linalg.lu_solve(LU, pivots * 9, eye),
        lambda: linalg.lu_solve(LU.half(), pivots, eye.half()),
        lambda: linalg.lu_solve(LU.expand(2, 3, 3), pivots.expand(2, 3), eye.expand(3, 3, 3)),
        lambda: torch.lu_unpack(LU, pivots * 9),
        lambda: torch.lu_unpack(LU[0], pivots),
    ]
    return [message(call) for call in calls]


@alike
def test_errors_of_householder(torch):
    h, tau = torch.geqrf(torch.ones(2, 4, 3))
    product, c = torch.linalg.householder_product, torch.ones(2, 4, 2)
    calls = [
        lambda: torch.geqrf(h[0, 0]), lambda: torch.geqrf(h.long()), lambda: torch.geqrf(h.half()),
        lambda: torch.geqrf(h.requires_grad_()).a.sum().backward(),
        lambda: product(torch.ones(3, 5), torch.ones(3)), lambda: product(torch.ones(5, 3), torch.ones(4)),
        lambda: product(h, tau[0]), lambda: product(h, tau.double()), lambda: product(h[0, 0], tau),
        lambda: product(h, tau[0, 0]), lambda: torch.orgqr(h.long(), tau.long()), lambda: product(h.half(), tau.half()),
        lambda: torch.ormqr(h, tau, c.mT), lambda: torch.ormqr(h, tau, c, False), lambda: torch.ormqr(h, tau[0], c),
        lambda: torch.ormqr(h, tau, c[0]), lambda: torch.ormqr(h[0, 0], tau, c), lambda: torch.ormqr(h, tau, c[0, 0]),
        lambda: torch.ormqr(h.long(), tau.long(), c.long()), lambda: torch.ormqr(h[0], torch.ones(2), c[0]),
    ]  # fmt: skip
    return [message(call) for call in calls]


@alike
def test_errors_of_ldl(torch):
    linalg, eye = torch.linalg, torch.eye(3)
    LD, pivots = linalg.ldl_factor(eye)
    calls = [
        lambda: linalg.ldl_factor_ex(eye[0]), lambda: linalg.ldl_factor(eye[:2]), lambda: linalg.ldl_factor(eye.long()),
        lambda: linalg.ldl_factor(eye.half()), lambda: linalg.ldl_solve(LD, pivots.float(), eye),
        lambda: linalg.ldl_solve(LD, pivots, eye.double()), lambda: linalg.ldl_solve(LD, pivots[:2], eye),
        lambda: linalg.ldl_solve(LD, pivots * 9, eye), lambda: linalg.ldl_solve(LD, pivots * 0, eye),
        lambda: linalg.ldl_solve(LD[:2], pivots, eye), lambda: linalg.ldl_solve(LD.half(), pivots, eye.half()),
        lambda: linalg.ldl_factor(eye.requires_grad_()).LD.sum().backward(),
    ]  # fmt: skip
    return [message(call) for call in calls]


def test_a_zero_block_of_ldl_is_an_error():
    """(PyTorch's is an internal assertion.)"""
    zero = tg.stack([tg.eye(2), tg.zeros(2, 2)])
    assert tg.linalg.ldl_factor_ex(zero).info.tolist() == [0, 1]
    for call in (lambda: tg.linalg.ldl_factor(zero), lambda: tg.linalg.ldl_factor_ex(zero, check_errors=True)):
        with pytest.raises(RuntimeError, match=r"\(Batch element 1\): D\[1,1\] is zero"):
            call()


@alike
def test_errors_of_low_rank(torch):
    a, eye = torch.ones(5, 4), torch.eye(9)
    calls = [
        lambda: torch.pca_lowrank(a, q=6), lambda: torch.pca_lowrank(a, q=-1), lambda: torch.pca_lowrank(a, niter=-1),
        lambda: torch.lobpcg(eye, k=4),
    ]  # fmt: skip
    types = [
        lambda: torch.svd_lowrank(a[0]), lambda: torch.pca_lowrank(a.long()), lambda: torch.svd_lowrank(a.half(), q=2),
    ]  # fmt: skip
    return [message(call) for call in calls], [message(call).partition(":")[0] for call in types]


@pytest.mark.parametrize(
    "arguments",
    [{"k": 0}, {"X": tg.ones(8, 2)}, {"B": tg.eye(3)}, {"iK": tg.eye(9).double()}, {"A": tg.ones(9, 8)}],
    ids=lambda a: next(iter(a)),
)
def test_lobpcg_refuses(arguments):
    with pytest.raises((RuntimeError, ValueError), match=r"torch\.lobpcg: "):
        tg.lobpcg(**{"A": tg.eye(9), **arguments})


def test_lobpcg_with_b_has_no_derivative():
    B = tg.eye(9).requires_grad_()
    E, _ = tg.lobpcg(tg.diag(tg.arange(1.0, 10)), B=B)
    with pytest.raises(ValueError, match="does not support backward with B != I"):
        E.sum().backward()


@alike
def test_removed_functions_name_their_replacements(torch):
    eye = torch.eye(2)
    calls = {
        "solve": (eye, eye), "symeig": (eye, True), "eig": (eye,), "lstsq": (eye, eye), "matrix_rank": (eye,),
    }  # fmt: skip
    found = []
    for name, arguments in calls.items():
        for place in (torch, torch.Tensor):
            if not hasattr(place, name):
                found.append(None)
                continue
            said = message(functools.partial(getattr(place, name), *arguments))
            found.append((said[:80], f"linalg.{name.replace('sym', '')}" in said))
    return found
