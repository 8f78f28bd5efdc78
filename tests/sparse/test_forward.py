"""Forward mode through sparse tensors, which PyTorch has not: tangents against differences, or errors."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.autograd import forward_ad

AT = torch.tensor([[0, 1, 1], [2, 0, 2]])
VALUES = torch.tensor([2.0, 3.0, 0.5], dtype=torch.float64)
DENSE = torch.arange(6, dtype=torch.float64).reshape(3, 2) / 5 + 0.3


def matrix(values):
    return torch.sparse_coo_tensor(AT, values, (2, 3), is_coalesced=True)


def dense(x):
    return x if x.layout is torch.strided else x.to_dense()


CALLS = {
    "to_dense": lambda s, d: s.to_dense(), "mm": lambda s, d: s @ d, "sparse.mm": lambda s, d: torch.sparse.mm(s, d),
    "of two sparse": lambda s, d: torch.sparse.mm(s, s.t()), "CSR": lambda s, d: s.to_sparse_csr() @ d,
    "addmm": lambda s, d: torch.sparse.addmm(d[:2], s, d), "hspmm": lambda s, d: torch.hspmm(s, d),
    "sum": lambda s, d: s.sum(0), "sparse.sum": lambda s, d: torch.sparse.sum(s, 1), "norm": lambda s, d: s.norm(),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1), "log_softmax": lambda s, d: torch.sparse.log_softmax(s, 1),
    "sin": lambda s, d: s.sin(), "sqrt": lambda s, d: s.sqrt(), "log1p": lambda s, d: s.log1p(),
    "tanh": lambda s, d: s.tanh(), "relu": lambda s, d: s.relu(), "power": lambda s, d: s**3,
    "by elements": lambda s, d: s * s, "with dense": lambda s, d: s * d.t(), "sum with dense": lambda s, d: d.t() + s,
    "select": lambda s, d: s[1], "index_select": lambda s, d: s.index_select(1, torch.tensor([2, 2])),
    "cat": lambda s, d: torch.cat([s, s]), "sparse_mask": lambda s, d: d.t().sparse_mask(s.detach()),
    "sampled_addmm": lambda s, d: torch.sparse.sampled_addmm(s.to_sparse_csr(), d[:2], d.t()),
    "to_sparse": lambda s, d: d.to_sparse(),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_tangents_are_derivatives(name):
    def along(t):
        return dense(CALLS[name](matrix(VALUES + t * VALUES.cos()), DENSE + t * DENSE.sin()))

    with forward_ad.dual_level():
        values = forward_ad.make_dual(VALUES, VALUES.cos())
        tangent = forward_ad.unpack_dual(CALLS[name](matrix(values), forward_ad.make_dual(DENSE, DENSE.sin()))).tangent
        tangent = dense(tangent)
    np.testing.assert_allclose(tangent.numpy(), ((along(1e-6) - along(-1e-6)) / 2e-6).numpy(), rtol=1e-6, atol=1e-8)


def test_what_has_no_tangent_says_so():
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"sparse\.mm"):
        torch.sparse.mm(matrix(VALUES).to_sparse_csr(), forward_ad.make_dual(DENSE, DENSE), "amax")


@pytest.mark.parametrize(
    "name", ["sin", "sqrt", "log1p", "tanh", "power", "norm", "by elements", "sparse.mm", "select"]
)
def test_second_derivatives(name):
    s = matrix(VALUES).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda s: CALLS[name](s, DENSE), [s], masked=True)


def test_a_derivative_that_is_missing_is_an_error():
    s = matrix(VALUES).requires_grad_()
    (g,) = torch.autograd.grad(torch.sparse.softmax(s, 1).to_dense().square().sum(), s, create_graph=True)
    with pytest.raises(NotImplementedError, match="softmax"):
        g.to_dense().sum().backward()
