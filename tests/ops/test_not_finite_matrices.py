"""Linear algebra of matrices with nan and infinity: LAPACK may never return from them, and Python cannot interrupt it.

So no test here could end a hang. Instead NumPy's iterative routines are replaced by ones that refuse such numbers: a
call that would reach LAPACK with them fails.
"""

import contextlib
import math

import numpy as np
import pytest

import tensorgrad as torch
from tests.support.alike import alike

INF, NAN = math.inf, math.nan
ITERATIVE = ("svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "lstsq", "pinv", "matrix_rank", "cond")


def with_numbers(*places):
    matrix = [[4.0, 1.0, 2.0], [1.0, 5.0, 1.0], [2.0, 1.0, 6.0]]
    for row, column, value in places:
        matrix[row][column] = value
    return matrix


MATRICES = {
    "from which NumPy's SVD does not return": [[10.0, 14, -30, -41], [14, 0, 1, 0], [INF, 0, 0, -5]],
    **{f"{value} at {i}, {j}": with_numbers((i, j, value)) for value in (INF, -INF, NAN)
       for i, j in ((0, 0), (1, 1), (2, 0), (0, 2))},
    "infinity twice": with_numbers((2, 0, INF), (0, 2, INF)),
    "infinity and nan": with_numbers((2, 0, NAN), (0, 2, INF)),
    "all infinite": [[INF] * 3] * 3,
    "all nan": [[NAN] * 3] * 3,
    "1 x 1, infinite": [[INF]],
    "1 x 1, nan": [[NAN]],
    "2 x 2, infinite": [[INF, 1.0], [1.0, 1.0]],
    "2 x 2, nan": [[NAN, 1.0], [1.0, 1.0]],
    "a row": [[1.0, INF, 2.0]],
    "a column": [[1.0], [INF], [2.0]],
    "one of several": [with_numbers(), with_numbers((1, 2, INF)), with_numbers()],
    "one of several, nan": [with_numbers(), with_numbers((2, 1, NAN)), with_numbers()],
}  # fmt: skip


def right_sides(a, torch):
    return torch.ones(*a.shape[:-1], 2, dtype=a.dtype)


# What is computed of matrices alone, by its name; each is called for every matrix.
CALLS = {
    "svd": lambda torch, a: torch.linalg.svd(a),
    "reduced svd": lambda torch, a: torch.linalg.svd(a, full_matrices=False),
    "svdvals": lambda torch, a: torch.linalg.svdvals(a),
    "torch.svd": lambda torch, a: torch.svd(a),
    "pinv": lambda torch, a: torch.linalg.pinv(a),
    "pinv, hermitian": lambda torch, a: torch.linalg.pinv(a, hermitian=True),
    "matrix_rank": lambda torch, a: torch.linalg.matrix_rank(a),
    "matrix_rank, hermitian": lambda torch, a: torch.linalg.matrix_rank(a, hermitian=True),
    **{f"cond {p}": lambda torch, a, p=p: torch.linalg.cond(a, p) for p in (None, 2, -2, "nuc", "fro", 1, -INF)},
    **{f"norm {p}": lambda torch, a, p=p: torch.linalg.matrix_norm(a, p) for p in (2, -2, "nuc", "fro", 1, -INF)},
    "torch.norm": lambda torch, a: torch.norm(a, "nuc", dim=(-2, -1)),
    "eig": lambda torch, a: torch.linalg.eig(a),
    "eigvals": lambda torch, a: torch.linalg.eigvals(a),
    "eigh": lambda torch, a: torch.linalg.eigh(a),
    "eigh, upper": lambda torch, a: torch.linalg.eigh(a, "U"),
    "eigvalsh": lambda torch, a: torch.linalg.eigvalsh(a),
    "qr": lambda torch, a: torch.linalg.qr(a),
    "geqrf": lambda torch, a: torch.geqrf(a),
    **{f"lstsq {driver}": lambda torch, a, driver=driver: torch.linalg.lstsq(a, right_sides(a, torch), driver=driver)
       for driver in ("gelsy", "gels", "gelsd", "gelss")},
    "solve": lambda torch, a: torch.linalg.solve(a, right_sides(a, torch)),
    "inv": lambda torch, a: torch.linalg.inv(a),
    "det": lambda torch, a: torch.linalg.det(a),
    "slogdet": lambda torch, a: torch.linalg.slogdet(a),
    "gradient of det": lambda torch, a: torch.autograd.grad(torch.linalg.det(a.requires_grad_()).sum(), a),
    "cholesky": lambda torch, a: torch.linalg.cholesky(a),
    "lu": lambda torch, a: torch.linalg.lu(a),
    "ldl_factor": lambda torch, a: torch.linalg.ldl_factor(a),
    "matrix_exp": lambda torch, a: torch.linalg.matrix_exp(a),
    "matrix_power": lambda torch, a: torch.linalg.matrix_power(a, -2),
    "svd_lowrank": lambda torch, a: torch.svd_lowrank(a, 1),
    "pca_lowrank": lambda torch, a: torch.pca_lowrank(a, 1),
    "lobpcg": lambda torch, a: torch.lobpcg(a, 1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_lapack_iterates_over_finite_numbers_only(dtype, monkeypatch):
    """Every function, with every matrix: LAPACK's iterations do not get to see what they may not return from."""

    def refusing(name):
        routine = getattr(np.linalg, name)

        def refuse(a, *args, **kwargs):
            assert np.isfinite(a).all(), f"NumPy's {name} is called with nan or infinity"
            return routine(a, *args, **kwargs)

        return refuse

    for name in ITERATIVE:
        monkeypatch.setattr(np.linalg, name, refusing(name))
    for matrix in MATRICES.values():
        for call in CALLS.values():
            with contextlib.suppress(RuntimeError, ValueError):  # also `LinAlgError`
                call(torch, torch.tensor(matrix, dtype=dtype))


def kinds(result):
    """What each number is: 0 for finite ones, else nan or an infinity. (Phases and signs of vectors are free.)"""
    if isinstance(result, tuple | list):
        return [kinds(part) for part in result]
    return [value if value - value != 0 else 0.0 for value in result.detach().reshape(-1).tolist()]


SAME_AS_TORCH = (
    "svdvals", "matrix_rank", "cond None", "cond 2", "cond -2", "cond nuc", "cond fro", "cond 1", "norm 2", "norm -2",
    "norm nuc", "norm fro", "norm 1", "solve", "inv", "det", "slogdet", "matrix_power",
)  # fmt: skip


@alike
def test_not_finite_results_are_those_of_torch(torch):
    """nan, infinity or an error where torch has them. (Vectors and factors depend on its version of LAPACK.)"""
    seen = []
    for name in SAME_AS_TORCH:
        for numbers in MATRICES.values():
            try:
                seen.append(kinds(CALLS[name](torch, torch.tensor(numbers))))
            except RuntimeError as error:
                seen.append("LinAlgError" if "LinAlgError" in type(error).__name__ else "RuntimeError")
    return seen


@pytest.mark.parametrize("name", ["svd", "pinv", "inv", "solve", "lu", "cholesky", "eigh"])
@pytest.mark.filterwarnings("ignore")
def test_a_nan_never_disappears(name):
    """The result of a matrix with a nan has one, or is an error; the others of the stack are what they are alone."""
    good = torch.tensor(with_numbers())
    for i, j in ((0, 0), (1, 1), (2, 0)):
        bad = good.clone()
        bad[i, j] = NAN
        try:
            results = CALLS[name](torch, torch.stack([good, bad, good]))
        except RuntimeError:
            continue
        alone = CALLS[name](torch, good)
        for part, expected in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (results, alone))):
            assert torch.allclose(part[0], expected, atol=1e-5) and torch.allclose(part[2], expected, atol=1e-5)
        results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
        assert any(part[1].isnan().any() for part in results if part.is_floating_point())
