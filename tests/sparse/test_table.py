"""The table of kernels of sparse layouts, ops on elements, and gradcheck of products."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.sparse import table
from tensorgrad.rows.kernel_tables import OPS, REGISTRY, function_at

LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_rows_are_ops_and_kernels(layout):
    assert table.ALL.keys() <= REGISTRY[layout, "device"].keys() <= OPS.keys()
    assert all(callable(function_at(path)) for path in REGISTRY[layout, "device"].values())


def test_ops_that_keep_zeros_run_on_the_stored_values():
    x = torch.tensor([[0.0, -2.5], [1.5, 0.0]])
    s = x.to_sparse()
    for function in (torch.sin, torch.nn.functional.gelu, lambda t: t.clamp(-1, 1), lambda t: t > 1, lambda t: t % 2):
        made = function(s)
        assert made.is_sparse and made._nnz() == 2
        np.testing.assert_array_equal(made.to_dense().numpy(), function(x).numpy())


@pytest.mark.parametrize("function", [torch.exp, torch.cos, lambda t: t < 1, lambda t: t.clamp(min=1)])
def test_ops_that_do_not_are_refused(function):
    with pytest.raises(NotImplementedError, match="does not keep zeros"):
        function(torch.eye(2).to_sparse())


def test_two_tensors_need_a_kernel_of_their_own():
    s = torch.eye(2).to_sparse()
    for call in (lambda: s == s, lambda: torch.eye(2) == s, lambda: torch.maximum(s, torch.eye(2))):
        with pytest.raises(NotImplementedError, match="two tensors of which one is sparse"):
            call()


@pytest.mark.parametrize("name", ["ones_like", "rand_like", "randn_like"])
def test_what_would_store_every_element_is_refused(name):
    with pytest.raises(NotImplementedError, match=f"{name}: not supported for layout torch.sparse_coo"):
        getattr(torch, name)(torch.eye(2).to_sparse())


gradcheck = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
MATRIX = torch.tensor([[0.0, 2.0, -1.0], [3.0, 0.0, 0.5]], dtype=torch.float64)
FACTOR = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
WEIGHTS = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3)
PRODUCTS = {
    "sparse.mm": lambda s, d: torch.sparse.mm(s, d),
    "mm": lambda s, d: torch.mm(s, d),
    "transposed": lambda s, d: torch.sparse.mm(s.t(), d[:2]),
    "of a vector": lambda s, d: torch.mv(s, d[:, 0]),
    "addmm": lambda s, d: torch.sparse.addmm(d[:2], s, d, beta=0.5, alpha=2.0),
    "of two sparse": lambda s, d: torch.sparse.mm(s, s.t()).to_dense(masked_grad=False),
    "by elements": lambda s, d: (s * WEIGHTS).to_dense(masked_grad=False) * d[0, 0],
    "a sum": lambda s, d: torch.sparse.sum(s, 1).to_dense(masked_grad=False) * d[:2, 0],
}


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_gradcheck_of_products(name, layout):
    if layout == "sparse_csr" and name in ("a sum", "transposed", "of two sparse"):
        pytest.skip("for COO only here")
    s = MATRIX.to_sparse(layout=getattr(torch, layout)).requires_grad_()
    assert gradcheck(PRODUCTS[name], [s, FACTOR.clone().requires_grad_()], masked=True)
