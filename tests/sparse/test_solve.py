"""`torch.sparse.spsolve`, which torch has only on the GPU: beside the dense solver."""

import numpy as np
import pytest

import tensorgrad as torch

pytest.importorskip("scipy", reason="spsolve needs SciPy")


def system(n, dtype, seed=0):
    """A sparse matrix with numbers on its diagonal that are large enough, as dense and as CSR."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, n)) * (rng.uniform(size=(n, n)) < 0.2) + np.diag(rng.uniform(3, 5, n))
    if dtype.is_complex:
        dense = dense * (1 + 0.5j)
    dense = torch.tensor(dense).to(dtype)
    return dense, dense.to_sparse_csr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_as_the_dense_solver(dtype, columns):
    for n in (1, 5, 40):
        dense, sparse = system(n, dtype)
        right = torch.arange(1.0, 1 + n * int(np.prod(columns))).reshape(n, *columns).to(dtype)
        found, expected = torch.sparse.spsolve(sparse, right), torch.linalg.solve(dense, right)
        assert found.dtype is dtype and found.shape == right.shape
        near = 1e-4 if dtype in (torch.float32, torch.complex64) else 1e-10
        assert torch.allclose(found, expected, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients(dtype):
    _, sparse = system(6, dtype)
    values = sparse.values().detach().requires_grad_()
    for shape in ((6,), (6, 2)):
        right = torch.ones(shape, dtype=dtype, requires_grad=True)

        def solved(values, right):
            made = torch.sparse_csr_tensor(sparse.crow_indices(), sparse.col_indices(), values, sparse.shape)
            return torch.sparse.spsolve(made, right)

        assert torch.autograd.gradcheck(solved, (values, right))
        assert torch.autograd.gradgradcheck(solved, (values, right))


def test_errors():
    dense, sparse = system(4, torch.float64)
    with pytest.raises(RuntimeError, match="singular"):
        torch.sparse.spsolve(torch.zeros(3, 3, dtype=torch.float64).to_sparse_csr(), torch.ones(3, dtype=torch.float64))
    for matrix, right in (
        (dense, torch.ones(4, dtype=torch.float64)),
        (sparse.to_sparse_coo(), torch.ones(4, dtype=torch.float64)),
        (sparse, torch.ones(4)), (sparse, torch.ones(3, dtype=torch.float64)), (sparse, torch.ones(4, 2, 2).double()),
        (system(4, torch.float64)[0][:2].to_sparse_csr(), torch.ones(2, dtype=torch.float64)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="spsolve"):
            torch.sparse.spsolve(matrix, right)
