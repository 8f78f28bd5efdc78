"""`torch.tensor` and its like, from everything that may stand in a list: value, dtype, shape, or the exception.

Every value of `VALUES` is given to every constructor of `MAKERS`, here and in torch.
"""

import array
import collections
import decimal
import fractions
import warnings

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import HAS_TORCH

pytestmark = pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of these tests")

MAKERS = {
    "tensor": lambda l, v: l.tensor(v),
    "as_tensor": lambda l, v: l.as_tensor(v),
    "asarray": lambda l, v: l.asarray(v),
    "scalar_tensor": lambda l, v: l.scalar_tensor(v),
    "Tensor": lambda l, v: l.Tensor(v),
    "FloatTensor": lambda l, v: l.FloatTensor(v),
    "DoubleTensor": lambda l, v: l.DoubleTensor(v),
    "LongTensor": lambda l, v: l.LongTensor(v),
    "BoolTensor": lambda l, v: l.BoolTensor(v),
    "new": lambda l, v: l.ones(1, dtype=l.float64).new(v),
    "new_tensor": lambda l, v: l.ones(1, dtype=l.float64).new_tensor(v),
    "tensor that requires grad": lambda l, v: l.tensor(v, requires_grad=True),
    **{
        f"tensor of {name}": lambda l, v, name=name: l.tensor(v, dtype=getattr(l, name))
        for name in ("float32", "float16", "int64", "int8", "uint8", "bool", "complex64")
    },
}
TENSORS = """
[l.ones(1)] | [l.ones(1), l.ones(1)] | [1.0, l.ones(1)] | [l.ones(1), 1.0] | [l.ones(2)] | [1.0, l.ones(2)]
(l.ones(1),) | [l.tensor(2.0)] | [l.tensor(2.0), l.tensor(3)] | [l.ones(1, 1)] | [[l.ones(1)]] | [[l.ones(1)], [2.0]]
[l.empty(0)]
[[l.ones(1), 1], [2, l.tensor(3)]] | [[l.ones(2)], [2.0]] | [l.ones(2, 3)] | [l.tensor(1), l.tensor(2)]
[[1.0], l.ones(1)] | [l.tensor(1), 1.5] | [1.5, l.tensor(1)] | [l.ones(1, dtype=l.float64)]
[l.ones(1, dtype=l.float64), 1]
[l.ones(1, dtype=l.float16), 1.0] | [l.ones(1, dtype=l.float16), l.tensor(1)] | [l.tensor(True)] | [l.tensor(True), 1]
[l.tensor(1j)] | [1, l.tensor(1j)] | [l.tensor(1 + 0j)] | [l.tensor(1, dtype=l.uint8), 300] | [1.0, l.tensor([1j])]
[l.tensor([1.5], dtype=l.bfloat16)] | [l.tensor([1], dtype=l.int8), l.tensor([1], dtype=l.int16)] | l.tensor([1, 2])
[l.ones(1, requires_grad=True)] | [l.ones(2, requires_grad=True)] | [l.nn.Parameter(l.ones(1))] | l.tensor(3.0)
l.ones(2, requires_grad=True) * 2 | [l.ones(1), [1.0]] | [l.ones(2), [1.0, 2.0]] | [[1.0, 2.0], l.ones(2)]
[[1.0, 2.0], l.ones(3)] | [[1.0, 2.0], l.ones(2, 1)] | [[1.0, 2.0], l.ones(2, 2)] | [l.ones(1), l.ones(2)]
[[1, 2], l.tensor([3, 4])] | [l.ones(1), None] | [l.ones(1), np.ones(1)]
"""
ARRAYS = """
[np.ones(1)] | [np.ones(2)] | [np.ones(1), np.ones(1)] | [np.ones(2), np.ones(2)] | [np.ones((2, 1)), np.ones((2, 1))]
[1.0, np.ones(1)] | [np.ones(1), 1.0] | [1.0, np.array(1.5)] | [np.float32(1)] | [np.float64(1.5)] | [np.int64(1)]
[np.int8(1), 1.0] | [np.bool_(True)] | [np.float16(1), 1] | [np.complex64(1)] | [[np.float32(1), 1], [2, 3]]
[np.ones(2, np.int32), np.ones(2, np.int32)] | [np.ones(2, np.int32), np.ones(2, np.float32)]
np.arange(3)[::-1] | [np.ones(2, np.float32), [1.0, 2.0]] | [[1.0, 2.0], np.ones(2, np.float32)]
[np.ones(2), np.ones(3)]
np.ones((2, 2), np.int16) | np.float32(2) | np.array(["a"]) | np.array([1, None]) | [np.arange(3)[::-1]]
[np.uint32(5)] | np.arange(3, dtype=">i4") | np.arange(3, dtype="u2") | np.ones(2, np.longdouble)
np.array(["2020-01-01"], "M8[D]") | [np.empty((0, 3))] | np.float64(1.5) | [np.ones(1), l.ones(1)]
"""
PLAIN = """
range(3) | [range(2), range(2)] | {1, 2} | {1: 2} | None | [None] | [1, None] | [] | [[]] | [[], []] | [[], 1] | [1, []]
[[], [1]] | "ab" | ["a"] | [1, "a"] | ["ab", 1] | b"ab" | bytearray(b"abcd") | True | 1j | [1, True, 2.5] | [True, 1]
[2**63] | [2**64] | [[1, 2], [3]] | [[1], 2] | [1, [2]] | (i for i in range(3)) | [l.Size([2, 3])] | l.float32
[1.0, float("nan")] | memoryview(b"abcd") | array.array("d", [1, 2]) | [fractions.Fraction(1, 2)] | [decimal.Decimal(1)]
[1e40] | 1e40 | collections.deque([1, 2]) | [300.0] | [-300.0] | [127.9] | [-128.9] | [255.9] | [-1.0] | [-1]
[2.0**63]
[10**30, 1.5] | [10**30] | [1 + 0j] | [0.5] | [float("inf")] | [1, b"a"] | [1, 1j] | [[1, 2], [3, 4.5]]
((1, 2), [3, 4])
"""
VALUES = [
    value.strip() for text in (TENSORS, ARRAYS, PLAIN) for value in text.replace("\n", "|").split("|") if value.strip()
]
NAMES = {"np": np, "array": array, "collections": collections, "decimal": decimal, "fractions": fractions}

# Where it differs, and why: (constructors, values) -> reason.
DEVIATIONS = {
    ("LongTensor BoolTensor int64 int8 uint8 bool", "[1.0, np.array(1.5)]"): (
        "an array without dimensions is a number here, whatever its dtype"
    ),
    ("LongTensor BoolTensor int64 int8 uint8 bool", "[np.ones(1), l.ones(1)]"): (
        "PyTorch takes an array's integer dtype for the tensor's"
    ),
    ("LongTensor BoolTensor int64 int8 uint8", "[10**30, 1.5]"): "the same refusal in other words",
    ("tensor as_tensor asarray grad", "[np.empty((0, 3))]"): "nothing has no dtype but the default",
    ("scalar_tensor", "1j 1e40"): "PyTorch refuses what float32 rounds to infinity, only here",
}


def observed(library, maker: str, value: str):
    """(dtype, shape, values, whether it requires grad, whether it is a leaf), or (type, text) of an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = eval(value, {"l": library, **NAMES})
        try:
            made = MAKERS[maker](library, given)
        except Exception as error:
            kinds = (RuntimeError, TypeError, ValueError, OverflowError)
            return next((k.__name__ for k in kinds if isinstance(error, k)), type(error).__name__), str(error)
        assert not made.requires_grad or made.is_leaf or made.grad_fn is not None
        name = str(made.dtype).rpartition(".")[2]
        return name, tuple(made.shape), repr(made.tolist()), made.requires_grad, made.is_leaf


def excused(maker: str, value: str) -> bool:
    return any(
        maker.rpartition(" ")[2] in makers.split() and (value == values or value in values.split())
        for makers, values in DEVIATIONS
    )


@pytest.mark.parametrize("maker", MAKERS)
def test_every_construction_is_pytorchs(maker):
    import torch

    wrong = []
    for value in VALUES:
        if excused(maker, value):
            continue
        found, expected = observed(tensorgrad, maker, value), observed(torch, maker, value)
        if len(expected) == 2:  # the exception: PyTorch's type; the words that people search for
            alike = found[0] == expected[0]
            for words in (
                "only one element tensors",
                "too many dimensions",
                "invalid data type",
                "must be real number",
            ):
                alike = alike and ((words in expected[1]) <= (words in str(found[1])))
        else:
            alike = found == expected
        if not alike:
            wrong.append(f"{value}: {found}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_a_list_of_arrays_warns():
    with pytest.warns(UserWarning, match="list of numpy.ndarrays is extremely slow"):
        tensorgrad.tensor([np.ones(2), np.ones(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensorgrad.tensor([[1.0], [2.0]])


def test_a_legacy_constructor_is_a_view_of_its_tensor():
    x = tensorgrad.ones(2, requires_grad=True)
    y = tensorgrad.Tensor(x)
    y.sum().backward()
    assert y._base is x and x.grad.tolist() == [1.0, 1.0]
    assert tensorgrad.Tensor(tensorgrad.tensor([1, 2])).dtype is tensorgrad.int64
