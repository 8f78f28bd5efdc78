"""torch.linalg at its edges, against torch: nothing, nan, singular matrices in stacks, dtypes, names of arguments."""

import math

import pytest

import tensorgrad as tg
from tests.support.alike import alike
from tests.support.compare import outcome

pytestmark = pytest.mark.filterwarnings("ignore")

nan, inf = math.nan, math.inf
SQUARE = (
    "det", "slogdet", "inv", "inv_ex", "cholesky", "cholesky_ex", "eigvals", "eigh", "eigvalsh", "matrix_exp", "cond",
    "lu", "lu_factor", "lu_factor_ex", "ldl_factor",
)  # fmt: skip
ANY = ("svd", "svdvals", "qr", "pinv", "matrix_rank", "norm", "matrix_norm")


def described(call, words=True):
    """Returns shapes, dtypes and values of what a call returns, or its error (its type only, without `words`)."""
    results = outcome(call)
    if isinstance(results, Exception):
        kind = type(results).__name__.lstrip("_")
        return f"{kind}: {results}".replace("torch.linalg.", "linalg.") if words else kind
    return [(list(x.shape), x) for x in (results if isinstance(results, tuple) else (results,))]


@alike
def test_of_nothing(torch):
    shapes = [(0, 0), (2, 0, 0), (0, 3, 3), (0, 0, 0)]
    more = [(0, 3), (3, 0), (2, 0, 3), (0, 2, 3)]
    cases = [(name, shape) for name in SQUARE for shape in shapes] + [(name, s) for name in ANY for s in shapes + more]
    return {
        f"{name} {shape}": described(lambda f=name, s=shape: getattr(torch.linalg, f)(torch.empty(s)))
        for name, shape in cases
    }


@alike
def test_equations_of_nothing(torch):
    linalg, empty = torch.linalg, torch.empty
    calls = [
        lambda: linalg.solve(empty(0, 0), empty(0, 2)), lambda: linalg.solve(empty(0, 0), empty(0)),
        lambda: linalg.solve(empty(0, 3, 3), empty(3, 2)), lambda: linalg.solve(torch.eye(3), empty(3, 0)),
        lambda: linalg.solve_triangular(empty(0, 0), empty(0, 2), upper=True),
        lambda: linalg.lstsq(empty(0, 3), empty(0, 2)), lambda: linalg.lstsq(empty(3, 0), empty(3, 2)),
        lambda: linalg.lstsq(empty(0, 3, 2), empty(0, 3, 1)), lambda: linalg.tensorsolve(empty(0, 0), empty(0)),
        lambda: linalg.cond(empty(0, 0), "fro"), lambda: linalg.cond(empty(2, 0, 0), 1),
        lambda: linalg.cond(empty(0, 3, 3), "nuc"), lambda: linalg.matrix_norm(empty(0, 3), "nuc"),
        lambda: linalg.matrix_norm(empty(0, 3), 2), lambda: linalg.matrix_norm(empty(3, 0), 1),
        lambda: linalg.vander(empty(0)), lambda: linalg.qr(empty(3, 0), "complete"), lambda: linalg.svd(empty(3, 0)),
        lambda: linalg.matrix_power(empty(0, 3, 3), -2), lambda: linalg.tensorinv(empty(0, 0, 0, 0)),
    ]  # fmt: skip
    return [described(call) for call in calls]


@alike
def test_of_nan(torch):
    """Decompositions by iteration refuse it, factorizations pass it on; Cholesky finds it not positive."""
    one = torch.stack([torch.eye(2), torch.full((2, 2), nan)])
    names = (
        "det", "slogdet", "inv", "inv_ex", "cholesky", "cholesky_ex", "eig", "matrix_exp", "lu_factor_ex", "qr", "svd",
        "svdvals", "pinv", "matrix_rank", "cond", "norm", "matrix_norm",
    )  # fmt: skip
    found = {
        f"{f} {x.ndim}": described(lambda f=f, x=x: getattr(torch.linalg, f)(x)) for f in names for x in (one[1], one)
    }
    found["inf"] = described(lambda: torch.linalg.cholesky_ex(torch.full((2, 2), inf)).info)
    found["slogdet"] = described(lambda: torch.linalg.slogdet(torch.full((2, 2), inf)))
    found["cond"] = described(lambda: torch.linalg.cond(one, 1))
    found["nuc"] = described(lambda: torch.linalg.cond(one, "nuc"))
    return found


@alike
def test_a_stack_with_one_bad_matrix(torch):
    linalg, eye = torch.linalg, torch.eye(3)
    singular, ones = torch.stack([eye * 2, eye * 0]), torch.ones(2, 3, 1)
    indefinite = torch.stack([eye * 4, torch.diag(torch.tensor([4.0, -1.0, 4.0]))])
    calls = [
        lambda: linalg.inv(singular), lambda: linalg.inv_ex(singular), lambda: linalg.inv_ex(singular[0]),
        lambda: linalg.inv_ex(singular, check_errors=True), lambda: linalg.solve(singular, ones),
        lambda: linalg.solve_ex(singular, ones).info, lambda: linalg.solve_ex(singular, ones).result[0],
        lambda: linalg.solve_ex(singular, ones[0])[0].isfinite(), lambda: linalg.solve_ex(singular, ones, left=True)[1],
        lambda: linalg.solve_ex(eye * 2, ones.expand(2, 3, 3), left=False),
        lambda: linalg.solve_ex(singular[1], ones[0, :, 0]).info, lambda: linalg.cholesky(indefinite),
        lambda: linalg.cholesky_ex(indefinite).info, lambda: linalg.cholesky_ex(indefinite).L[0],
        lambda: linalg.cholesky_ex(indefinite, upper=True).info, lambda: linalg.cholesky_ex(-eye).L,
        lambda: linalg.cholesky_ex(indefinite, check_errors=True), lambda: linalg.cond(singular, "fro"),
        lambda: linalg.cond(singular, 1), lambda: linalg.cond(singular, "nuc"), lambda: linalg.cond(eye * 0, "fro"),
        lambda: linalg.matrix_power(singular, -1),
    ]  # fmt: skip
    return [described(call) for call in calls]


@alike
def test_gradients_of_the_flagged_forms(torch):
    A = torch.stack([torch.eye(2) + 1, torch.eye(2) * 2]).requires_grad_()
    B = torch.tensor([[1.0], [2.0]], requires_grad=True)
    results = torch.linalg.inv_ex(A)[0], torch.linalg.cholesky_ex(A, upper=True)[0], torch.linalg.solve_ex(A, B)[0]
    return [torch.autograd.grad(r.pow(2).sum(), (A, B), allow_unused=True) for r in results]


@alike
def test_wrong_dtypes(torch):
    found = {}
    for name in (*SQUARE, *ANY, "eig", "ldl_factor_ex"):
        for dtype in ("float16", "bfloat16", "int64", "bool"):
            if (name, dtype) in (("matrix_exp", "float16"), ("matrix_exp", "bfloat16")):  # PyTorch's values are wrong
                continue
            x = torch.eye(3).to(getattr(torch, dtype))
            found[f"{name} {dtype}"] = described(lambda f=name, x=x: getattr(torch.linalg, f)(x), words=False)
    half = torch.eye(3).half()
    for name in ("solve", "lstsq", "vecdot"):
        found[name] = described(lambda f=name: getattr(torch.linalg, f)(half, half), words=False)
    found["triangular"] = described(lambda: torch.linalg.solve_triangular(half, half, upper=True))
    found["det"] = described(lambda: torch.linalg.det(half))
    found["vander"] = described(lambda: torch.linalg.vander(half[0]))
    found["vecdot"] = described(lambda: torch.linalg.vecdot(torch.arange(3), torch.arange(3)))
    found["mixed"] = described(lambda: torch.linalg.vecdot(torch.ones(3), torch.arange(3)))
    return found


@alike
def test_names_of_arguments(torch):
    """As PyTorch's parser knows them, which is not always as its documentation says."""
    eye, one = torch.eye(4), torch.ones(4, 1)
    linalg, pivots = torch.linalg, torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    calls = {"A": ("det", "slogdet", "inv", "inv_ex", "svdvals", "lu_factor", "lu_factor_ex", "diagonal"),
             "input": ("cholesky", "cholesky_ex", "cond", "eigvals", "eigvalsh", "ldl_factor", "ldl_factor_ex",
                       "matrix_exp", "matrix_norm", "matrix_rank", "norm", "pinv", "vector_norm")}  # fmt: skip
    found = [described(lambda f=f, k=k: getattr(linalg, f)(**{k: eye})) for k, names in calls.items() for f in names]
    more = [
        lambda: linalg.eigh(input=eye, UPLO="u")[0], lambda: linalg.lstsq(input=eye, b=one, driver="gels"),
        lambda: linalg.solve(A=eye, B=one), lambda: linalg.solve_triangular(input=eye, B=one, upper=True),
        lambda: linalg.tensorinv(input=eye, ind=1), lambda: linalg.tensorsolve(input=eye, other=one[:, 0], dims=None),
        lambda: linalg.lu_solve(LU=eye, pivots=pivots, B=one), lambda: linalg.ldl_solve(LD=eye, pivots=pivots, B=one),
        lambda: linalg.householder_product(input=eye, tau=one[:, 0] * 0), lambda: linalg.vander(x=one[:, 0], N=2),
        lambda: linalg.vecdot(x=one, y=one, dim=0), lambda: linalg.matrix_power(input=eye, n=2),
        lambda: linalg.pinv(eye, 0.1, True), lambda: linalg.pinv(eye, rcond=0.1), lambda: linalg.matrix_rank(eye, 0.1),
        lambda: linalg.matrix_rank(eye, tol=0.1, hermitian=True), lambda: torch.cholesky_solve(input=one, input2=eye),
        lambda: torch.triangular_solve(input=one, A=eye),
        lambda: torch.lu_solve(input=one, LU_data=eye, LU_pivots=pivots),
        lambda: torch.lu_unpack(LU_data=eye, LU_pivots=pivots), lambda: torch.orgqr(input=eye, input2=one[:, 0] * 0),
        lambda: torch.ormqr(input=eye, input2=one[:, 0] * 0, input3=one), lambda: torch.inverse(input=eye),
        lambda: torch.det(input=eye), lambda: torch.slogdet(input=eye), lambda: torch.logdet(input=eye),
    ]  # fmt: skip
    return found + [described(call) for call in more]


@alike
def test_least_squares_returns_what_its_driver_finds(torch):
    A, B = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.0, 1.0]]), torch.arange(12.0).reshape(4, 3)
    pairs = [
        (A, B), (A, B[:, 0]), (A[:2], B[:2]), (A.mT, B[:2]), (A.expand(2, 4, 2), B.expand(2, 4, 3)),
        (A.expand(2, 4, 2), B[:, 0].expand(2, 4)),
    ]  # fmt: skip
    drivers = (None, "gels", "gelsy", "gelsd", "gelss")
    return [described(lambda a=a, b=b, d=d: torch.linalg.lstsq(a, b, driver=d)) for a, b in pairs for d in drivers]


@alike
def test_errors_in_words(torch):
    linalg, eye, ones = torch.linalg, torch.eye(3), torch.ones(3)
    calls = [
        lambda: linalg.vander(torch.tensor(2.0)), lambda: linalg.norm(torch.ones(2, 2, 2), None, (0, 1, 2)),
        lambda: linalg.norm(torch.ones(2, 2, 2), 2), lambda: linalg.cond(eye, 3), lambda: linalg.cond(eye, "foo"),
        lambda: linalg.cond(torch.ones(2, 3), 1), lambda: linalg.svd(eye, driver="gesvd"),
        lambda: linalg.svdvals(eye, driver="foo"), lambda: linalg.eigh(eye, 1), lambda: linalg.eigh(eye, "X"),
        lambda: linalg.matrix_power(eye, True), lambda: linalg.tensorinv(torch.ones(2, 3, 6), 0),
        lambda: linalg.lstsq(torch.ones(4, 2), torch.tensor(1.0)), lambda: linalg.lstsq(ones, ones),
        lambda: linalg.lstsq(torch.ones(4, 2), torch.ones(4, 2), driver="foo"), lambda: linalg.matrix_norm(eye, 3),
        lambda: linalg.eigvals(ones), lambda: linalg.svdvals(ones), lambda: linalg.inv(torch.zeros(2, 2)),
        lambda: torch.triangular_solve(ones, eye), lambda: torch.triangular_solve(torch.ones(2, 1), eye),
        lambda: torch.triangular_solve(torch.ones(3, 1).double(), eye), lambda: torch.cholesky_inverse(eye.half()).foo,
        lambda: torch.triangular_solve(torch.ones(2, 1), torch.ones(2, 3)), lambda: torch.cholesky_solve(eye[:2], eye),
        lambda: torch.cholesky_solve(eye, torch.ones(3, 2)), lambda: torch.cholesky_solve(eye.double(), eye),
    ]  # fmt: skip
    return [described(call) for call in calls]


@pytest.mark.parametrize("name", ["lu", "det", "solve", "norm", "cond", "matrix_exp", "ldl_factor", "vander", "pinv"])
@pytest.mark.parametrize("value", [[[1.0]], None, 1.0, "x"], ids=repr)
def test_what_is_not_a_tensor_is_a_type_error(name, value):
    extra = (tg.ones(1),) if name == "solve" else ()
    with pytest.raises(TypeError, match="must be Tensor, not"):
        getattr(tg.linalg, name)(value, *extra)


def test_views_of_all_kinds_are_read_alike():
    """Transposed, expanded and sliced matrices give what their copies give."""
    base = tg.randn(6, 6, 6, dtype=tg.float64)
    base = base @ base.mT + tg.eye(6, dtype=tg.float64)
    views = [base.mT, base[::2, ::2, ::2], base.flip(0)[1:], base[0].expand(2, 6, 6), base.permute(1, 0, 2)[:, :4, :4]]
    for name in (*SQUARE, *ANY):
        for view in views[: 3 if name in ("cholesky", "cholesky_ex") else None]:
            function = getattr(tg.linalg, name)
            found, expected = function(view), function(view.clone())
            if not isinstance(found, tuple):
                found, expected = (found,), (expected,)
            for a, b in zip(found, expected, strict=True):
                assert tg.allclose(a, b, atol=1e-7), name


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (0, 0), (2, 0, 3), (5, 3, 0)])
def test_qr_without_its_first_factor(shape):
    """It is an empty vector, no matrix."""
    matrix = tg.randn(shape, dtype=tg.float64)
    q, r = tg.linalg.qr(matrix, mode="r")
    assert q.shape == (0,) and q.dtype is matrix.dtype and r.shape == tg.linalg.qr(matrix).R.shape
    assert tg.allclose(r.mT @ r, matrix.mT @ matrix)


LOSSES = {
    "U": lambda t, A: t.linalg.svd(A)[0].real.sum(),
    "lengths of U": lambda t, A: t.linalg.svd(A)[0].abs().sum(),
    "V": lambda t, A: t.linalg.svd(A)[2].real.sum(),
    "U and V": lambda t, A: (lambda u, s, vh: (u @ vh).real.sum())(*t.linalg.svd(A)),
    "singular values": lambda t, A: t.linalg.svdvals(A).sum(),
    "eigenvectors": lambda t, A: t.linalg.eig(A)[1].real.sum(),
    "their lengths": lambda t, A: t.linalg.eig(A)[1].abs().sum(),
    "the matrix": lambda t, A: (lambda l, v: (v @ t.diag(l) @ t.linalg.inv(v)).real.sum())(*t.linalg.eig(A)),
    "eigenvalues": lambda t, A: t.linalg.eigvals(A).abs().sum(),
    "those of a Hermitian matrix": lambda t, A: t.linalg.eigh(A + A.mH)[1].real.sum(),
    "their squares": lambda t, A: (t.linalg.eigh(A + A.mH)[1].abs() ** 4).sum(),
}  # fmt: skip


@alike
def test_losses_that_depend_on_arbitrary_phases_have_no_gradient(t):
    seen = []
    for name, loss in LOSSES.items():
        for create_graph in (False, True):
            A = (t.arange(32.0, dtype=t.float64) ** 2 * 0.7).sin().view(2, 4, 4)
            A = t.complex(A[0], A[1]).requires_grad_()
            try:
                seen.append((name, t.autograd.grad(loss(t, A), A, create_graph=create_graph)[0].detach()))
            except RuntimeError as error:
                seen.append((name, str(error)[:100]))
    return seen


@alike
def test_distances_of_rows_with_nan_and_infinities(torch):
    values = (nan, inf, -inf, 0.0, -0.0, 1e-30, 2.0)
    found = {}
    for rows in (3, 49):  # of more than 25 rows Euclidean distances may be computed by products
        x = torch.tensor([(a, b) for a in values for b in values][:rows], dtype=torch.float64)
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, inf):
            found[f"pdist {rows} {p}"] = torch.pdist(x, p)
            found[f"of a batch {rows} {p}"] = torch.cdist(x[None].expand(2, -1, -1), x[:2], p)
            for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
                found[f"{mode} {rows} {p}"] = torch.cdist(x, x.flip(0), p, compute_mode=mode)
    return found
