"""In-place functions of tensors of any two layouts, and new tensors in a layout, beside torch.

Where torch gives a result it is compared; where it raises one of the errors that it was written to raise (not that of
an assertion inside of it, or a missing kernel), the same type of error is expected here, unless the call works here.
"""

import numpy as np
import pytest

import tensorgrad
from tests.sparse.cases import HYBRID, HYBRID_SECOND, LAYOUTS, SECOND, dense, numbers, shown

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytestmark = pytest.mark.filterwarnings("ignore")

OTHERS = {"dense": dense(4, 6, seed=41), "number": lambda T: 2.5, "0-dim": lambda T: T.tensor(2.5, dtype=T.float64)}
FIRST = {"dense": dense(4, 6, seed=40), **LAYOUTS}
PAIRS = [(FIRST[a], b, f"{a} {c}") for a in FIRST for c, b in {**SECOND, **OTHERS}.items()]
PAIRS += [
    (a, b, f"{k} {m}")
    for k, a in {"dense": dense(3, 4, 2, seed=40), "hybrid": HYBRID["hybrid"], "loose": HYBRID["loose hybrid"]}.items()
    for m, b in {"dense": dense(3, 4, 2), "hybrid": HYBRID_SECOND["hybrid"]}.items()
]
MIXES = {
    "add_": lambda x, y: x.add_(y), "add_ alpha": lambda x, y: x.add_(y, alpha=2), "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y), "div_": lambda x, y: x.div_(y), "floor_divide_": lambda x, y: x.floor_divide_(y),
    "copy_": lambda x, y: x.copy_(y), "+=": lambda x, y: x.__iadd__(y), "*=": lambda x, y: x.__imul__(y),
}  # fmt: skip


def outcome(T, function, *makers):
    """The first argument after the call, whether the call returned it, and the error."""
    given = [make(T) for make in makers]
    try:
        returned = function(*given)
    except Exception as error:
        return None, shown(given[0]), error
    return returned is given[0], shown(given[0]), None


def agree(theirs, mine):
    """Whether two `shown` tensors are the same, but for how often a COO tensor stores a coordinate."""
    (about, values), (about_here, values_here) = theirs, mine
    return about[:3] == about_here[:3] and np.allclose(values, values_here, equal_nan=True)


@pytest.mark.parametrize("name", MIXES)
def test_mixes(name):
    compared = 0
    for first, second, pair in PAIRS:
        same, after, error = outcome(torch, MIXES[name], first, second)
        same_here, after_here, error_here = outcome(tensorgrad, MIXES[name], first, second)
        if error is None:
            assert error_here is None and same_here == same, f"{pair}: {error_here}"
            assert agree(after, after_here), f"{pair}: {after} in torch, {after_here} here"
            compared += 1
        elif error_here is not None:
            assert isinstance(error_here, RuntimeError), f"{pair}: {error} in torch, {error_here!r} here"
            assert agree(shown(first(tensorgrad)), after_here), f"{pair}: an error has changed the tensor"
    assert compared >= 5


FUNCTIONS = ["abs", "asin", "ceil", "expm1", "frac", "log1p", "nan_to_num", "neg", "relu", "round", "sgn", "sign",
             "sin", "sqrt", "tanh", "trunc", "conj_physical", "rad2deg"]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_place_functions_want_coalesced_tensors(name):
    for make in (LAYOUTS["loose"], HYBRID["loose hybrid"], LAYOUTS["coo"], LAYOUTS["csr"], LAYOUTS["bsr"]):
        same, after, error = outcome(torch, lambda x: getattr(x, f"{name}_")(), make)
        same_here, after_here, error_here = outcome(tensorgrad, lambda x: getattr(x, f"{name}_")(), make)
        if "coalesced" in str(error):
            assert str(error) == str(error_here) and isinstance(error_here, RuntimeError)
        elif error is None:
            assert error_here is None and same == same_here and agree(after, after_here)


@pytest.mark.parametrize("name", ["add_", "add_ alpha", "sub_", "mul_", "*="])
@pytest.mark.parametrize("kind", ["coo", "loose"])
def test_gradients_of_a_dense_tensor_with_a_sparse_one(name, kind):
    def gradients(T):
        x, s = dense(4, 6, seed=40)(T).requires_grad_(), LAYOUTS[kind](T).requires_grad_()
        y = MIXES[name](x * 1, s)
        (y * T.tensor(numbers((4, 6), 44))).sum().backward()
        return shown(x.grad), shown(s.grad)

    for theirs, mine in zip(gradients(torch), gradients(tensorgrad)):
        assert theirs[0][0] == mine[0][0] and agree(theirs, mine)


@pytest.mark.parametrize("layout", ["strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
@pytest.mark.parametrize("name", ["new_zeros", "new_empty", "new_ones", "new_full", "zeros", "empty", "ones", "full"])
def test_new_tensors_in_a_layout(name, layout):
    def made(T, owner, shape, dtype):
        options = {"layout": getattr(T, layout), "dtype": dtype and getattr(T, dtype)}
        function = getattr(owner(T), name) if name.startswith("new") else getattr(T, name)
        try:
            x = function(shape, *([3] if name.endswith("full") else []), **options)
        except Exception as error:
            return error
        if name.endswith("empty") and layout == "strided":
            x.fill_(0)  # its values are whatever was in memory
        return x.layout, tuple(x.shape), x.dtype, shown(x)

    for owner in (FIRST["dense"], LAYOUTS["coo"], LAYOUTS["csr"]):
        for shape in ((2, 3), (4,), (), (2, 3, 4), (0, 3), (2, -1)):
            for dtype in (None, "int32"):
                theirs, mine = made(torch, owner, shape, dtype), made(tensorgrad, owner, shape, dtype)
                if isinstance(theirs, Exception):
                    assert isinstance(mine, RuntimeError)
                else:
                    assert str(theirs[:3]) == str(mine[:3])
                    assert theirs[3][0] == mine[3][0] and np.array_equal(theirs[3][1], mine[3][1], equal_nan=True)


def test_layouts_are_not_changed_in_place():
    x, s = FIRST["dense"], LAYOUTS["coo"]
    for T in (torch, tensorgrad):
        with pytest.raises(RuntimeError, match="in-place transposition is not supported for"):
            LAYOUTS["csr"](T).t_()
        for target, source in ((x, s), (s, x)):
            with pytest.raises(RuntimeError, match="between dense and sparse Tensors is not implemented! Found self"):
                target(T).copy_(source(T))
        with pytest.raises(RuntimeError, match="copy of sparse compressed tensors having different layouts is not"):
            LAYOUTS["csr"](T).copy_(LAYOUTS["csc"](T))
