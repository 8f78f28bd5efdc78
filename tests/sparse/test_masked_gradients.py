"""Derivatives of `torch.masked` reductions of sparse tensors: torch's where it has them, and those of small steps."""

import itertools

import numpy as np
import pytest

import tensorgrad
from tests.sparse.cases import shown

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = np.array([[1.0, 2, 0.3, 0.7], [-0.2, 3.0, 0.9, -4.0], [0.6, -1.1, 1.3, 1.7], [5.0, -0.5, 6.0, 2.5]])
STORED = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]])
MASK = np.array([[1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1]], bool)
INPUTS = {
    "coo": lambda T: T.tensor(VALUES * STORED).to_sparse(),
    "csr": lambda T: T.tensor(VALUES * STORED).to_sparse_csr(),
    "hybrid": lambda T: T.tensor(VALUES).to_sparse(1),
    "loose": lambda T: T.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], T.tensor([1.0, 2.0, 3.0], dtype=T.float64), (4, 4)),
}
MASKS = {
    "none": lambda T: None, "dense": lambda T: T.tensor(MASK), "coo": lambda T: T.tensor(MASK).to_sparse(),
    "csr": lambda T: T.tensor(MASK).to_sparse_csr(),
}  # fmt: skip
WAYS = [*itertools.product(MASKS, (0, 1, (0, 1), None), (False, True))]


def reduction(T, name, mask, dim, keepdim):
    return lambda x: getattr(T.masked, name)(x, dim, keepdim=keepdim, mask=MASKS[mask](T))


def worth(function, *given):
    """What a function gives, or None where it is not supported."""
    try:
        made = function(*given)
    except (AssertionError, ValueError, RuntimeError, NotImplementedError):
        return None
    return None if made is NotImplemented else made


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_as_torch(name):
    def gradient(T, mask, dim, keepdim):
        x = INPUTS["csr"](T).requires_grad_()
        made = worth(reduction(T, name, mask, dim, keepdim), x)
        if made is None:
            return None
        weights = T.arange(1.0, 1 + made.numel(), dtype=T.float64).reshape(made.shape)
        (made.to_dense() * weights).sum().backward()
        return shown(made), shown(x.grad)

    compared = 0
    for way in WAYS:
        theirs = gradient(torch, *way)
        if theirs is not None:
            compared += 1
            for a, b in zip(theirs, gradient(tensorgrad, *way), strict=True):
                assert a[0] == b[0] and np.allclose(a[1], b[1]), (way, a, b)
    assert compared >= 10


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
def test_by_small_steps(name, kind):
    check = tensorgrad.sparse.as_sparse_gradcheck(tensorgrad.autograd.gradcheck)
    checked = 0
    for way in WAYS:
        x = INPUTS[kind](tensorgrad).requires_grad_()
        reduced = reduction(tensorgrad, name, *way)
        if worth(reduced, x) is not None:
            checked += 1
            assert check(lambda x, f=reduced: f(x).to_dense(), (x,), masked=True)
    assert checked or (name, kind) in NONE, "nothing was checked"


# PyTorch has no mean of COO tensors.
NONE = {("mean", kind) for kind in ("coo", "hybrid", "loose")}


def test_second_derivatives_and_dtypes():
    values = tensorgrad.tensor([1.0, 2.0, 3.0], dtype=tensorgrad.float64, requires_grad=True)

    def product(values):
        x = tensorgrad.sparse_coo_tensor([[0, 0, 1], [0, 1, 2]], values, (2, 3))
        return tensorgrad.masked.prod(x, 1, mask=x.detach() != 0).to_dense()

    assert tensorgrad.autograd.gradcheck(product, (values,)) and tensorgrad.autograd.gradgradcheck(product, (values,))
    x = INPUTS["csr"](tensorgrad).to(tensorgrad.bfloat16).requires_grad_()
    tensorgrad.masked.sum(x, 1, keepdim=True).sum().backward()
    assert x.grad.dtype is tensorgrad.bfloat16 and x.grad.layout is tensorgrad.sparse_csr
