"""The small names of `torch` and of Tensor that PyTorch's database does not reach, each as in torch."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")

SETUP = """
x = l.arange(6.0).reshape(2, 3)
i = l.arange(6).reshape(2, 3)
m = l.tensor([[True, False, True], [False, True, False]])
"""


def text_and_warnings(library, expression):
    """Returns the text of an expression over `l` (the library), x, i and m, or its exception; and its warnings."""
    scope = {"l": library, "np": np}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(SETUP, scope)
        try:
            result = re.sub(r"\s+", " ", repr(eval(expression, scope)).replace("tensorgrad", "torch"))
        except Exception as error:
            result = error
    return result, sorted((w.category.__name__, str(w.message).partition(" (Trig")[0][:60]) for w in caught)


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def assert_same_text(expression: str, words: int = 40) -> None:
    """The same text, or the same exception with the same first words; and the same warnings."""
    torch.set_warn_always("warn_always" not in expression)  # some it says once in a process, whichever test comes first
    try:
        expected, expected_warnings = text_and_warnings(torch, expression)
    finally:
        torch.set_warn_always(False)
    actual, actual_warnings = text_and_warnings(tg, expression)
    if isinstance(expected, Exception):
        assert type(actual) is type(expected), f"{actual!r}, expected {expected!r}"
        assert str(actual)[:words] == str(expected)[:words]
    else:
        assert actual == expected
    assert actual_warnings == expected_warnings


# --- texts that must be the same -------------------------------------------------------------------------------------

SAME = """
x.clone().fill_diagonal_(5)
l.zeros(7, 3).fill_diagonal_(5, wrap=True)
l.zeros(12, 3).fill_diagonal_(5, wrap=True)
l.zeros(6, 3).fill_diagonal_(5, wrap=True)
l.zeros(4, 3).fill_diagonal_(5, wrap=True)
l.zeros(9, 1).fill_diagonal_(5, wrap=True)
l.zeros(7, 3).fill_diagonal_(5)
l.zeros(3, 7).t().fill_diagonal_(5)
l.zeros(3, 3, 3).fill_diagonal_(5)
l.zeros(3, 2, 3).fill_diagonal_(5)
l.zeros(3).fill_diagonal_(5)
l.zeros(0, 3).fill_diagonal_(5)
l.zeros(3, 3).fill_diagonal_(l.tensor(2.0))
l.zeros(3, 3, dtype=l.int64).fill_diagonal_(2.5)
l.zeros(3, 3).fill_diagonal_(1e300)
l.zeros(3, 3).fill_diagonal_(l.ones(2))
l.ones(1).expand(3, 3).fill_diagonal_(2)
l.ones(2, 3).requires_grad_().fill_diagonal_(2)
x.clone().map_(x + 1, lambda a, b: a + b)
x.clone().map_(l.ones(3), lambda a, b: a + b)
x.clone().map2_(x, x, lambda a, b, c: a + b + c)
x.clone().apply_(lambda a: a * 2)
i.clone().apply_(lambda a: a * 2.5)
i.clone().map_(x, lambda a, b: a)
x.clone().map2_(x, i, lambda a, b, c: a)
x.clone().requires_grad_().apply_(lambda a: a)
x.clone().map_(x.clone().requires_grad_(), lambda a, b: a)
x.apply_(lambda a: "s")
x.apply_(lambda a: None)
x.apply_(lambda a: 1j)
x.apply_(3)
x.map_(3, lambda a, b: a)
l.ones(3, dtype=l.bool).apply_(lambda a: 3)
l.ones(3, dtype=l.uint8).apply_(lambda a: 300)
l.ones(3, dtype=l.complex64).apply_(lambda a: a * 1j)
l.ones(3, dtype=l.float16).apply_(lambda a: a * 1e9)
l.ones(3, dtype=l.bfloat16).apply_(lambda a: a * 3)
l.ones(3).apply_(lambda a: l.tensor(2.0))
l.tensor([1]).is_nonzero(), l.is_nonzero(l.tensor(0.0))
l.tensor([1, 2]).is_nonzero()
l.tensor([]).is_nonzero()
x.is_pinned(), x.is_shared(), x.is_distributed(), l.is_distributed(x), x.is_inference(), l.is_inference(x)
x.is_set_to(x), x.is_set_to(x.view(2, 3)), x.is_set_to(x[:1]), x.is_set_to(x.clone())
x.is_set_to(3)
x.is_coalesced()
x.coalesce()
x.indices()
x.values()
x.crow_indices()
x.row_indices()
x.layout, x.name, x.volatile
x.resize(3, 2)
x.resize_as(i)
x.resize(5)
x.to_dense()
x.to_dense(l.float64)
x.const_data_ptr() == x.data_ptr()
x.dim_order(), x.t().dim_order(), l.ones(()).dim_order(), l.ones(4, 1).expand(4, 3).dim_order()
l.zeros(1, 1, 4).dim_order(ambiguity_check=True)
l.zeros(2, 1, 4).dim_order(ambiguity_check=[l.contiguous_format])
l.ones(1, 3, 1, 1).dim_order(ambiguity_check=[l.channels_last, l.contiguous_format])
l.ones(3).dim_order(ambiguity_check="a")
x.module_load(x + 1), x.module_load(x, assign=True)
[getattr(x, "is_" + d) for d in "xpu mps ipu maia mtia vulkan xla mkldnn nested quantized sparse sparse_csr".split()]
l.cpu.is_available(), l.cpu.device_count(), l.cpu.current_device(), l.cpu.is_initialized(), l.cpu.Event().query()
l._assert(False, "no"), l._assert(x.sum() == 0, "not zero")
l.linalg.vector_norm(x, "fro")
x.xpu()
x.ipu()
x.mtia()
x.sspaddmm(x, x)
x.sparse_dim(), x.dense_dim()
x.is_same_size(i), l.is_same_size(x, x.t()), l.get_device(x), l.is_signed(x), l.is_signed(m), l.numel(x)
l.detach(x), l.detach_copy(x), l.alias_copy(x)
l.detach(x.clone().requires_grad_()).requires_grad
l.slice_copy(x, 1, 0, 2), l.slice_copy(x), l.slice_copy(x, 0, -1), l.slice_copy(x, dim=1, start=0, end=10, step=2)
l.slice_copy(x, 0, 0, 2, -1)
l.slice_copy(l.tensor(1.0))
l.slice_inverse(x[:, :2], x, 1, 0, 2)
l.slice_inverse(x[:, :2].contiguous(), x, 1, 0, 2)
l.view_as_real_copy(l.tensor([1 + 2j])), l.view_as_complex_copy(l.tensor([1.0, 2.0]))
l.view_as_real_copy(x)
l.from_dlpack(l.to_dlpack(x)), l.utils.dlpack.from_dlpack(np.arange(3))
l.from_dlpack(3)
l.typename(x), l.typename(3), l.typename(l.float32), l.typename([]), l.typename(dict), l.typename(2j)
l.is_storage(x.untyped_storage()), l.is_storage(x)
l.compiled_with_cxx11_abi()
l.set_flush_denormal(1)
l.set_float32_matmul_precision("medium"), l.get_float32_matmul_precision(), l.set_float32_matmul_precision("highest")
l.set_float32_matmul_precision("bad")
l.set_float32_matmul_precision(3)
l.set_num_interop_threads(0)
l.set_num_interop_threads("a")
l.set_num_threads("a")
[(l.set_deterministic_debug_mode(d), l.get_deterministic_debug_mode()) for d in (1, "error", 2, "warn", 0)]
l.set_deterministic_debug_mode("warn"), l.is_deterministic_algorithms_warn_only_enabled()
l.set_deterministic_debug_mode(0), l.are_deterministic_algorithms_enabled()
l.set_deterministic_debug_mode(5)
l.set_deterministic_debug_mode("bad")
l.set_deterministic_debug_mode(1.5)
l.is_warn_always_enabled(), l.set_warn_always(True), l.is_warn_always_enabled(), l.set_warn_always(False)
l.set_warn_always(1)
[l.sym_int(v) for v in (2.7, -2.7, 3, True)], l.sym_float(2), l.sym_not(0), l.sym_sqrt(4), l.sym_sum([1, 2, 3])
[f(*v) for f in (l.sym_max, l.sym_min) for v in ((1, 2.5), (1, 2), (3.0, 3), (3, 3.0), (True, 2))]
l.sym_sqrt(-1)
l.sym_ite(True, 1, 2), l.sym_ite(False, 1, 2)
l.sym_ite(1, 1, 2)
l.sym_ite(True, 1, 2.0)
l.nonzero_static(m, size=4), l.nonzero_static(m, size=2, fill_value=7), m.nonzero_static(size=0)
l.nonzero_static(l.tensor(3.0), size=2)
l.nonzero_static(m, size=-1)
l.nonzero_static(l.ones(2, 2), size=2, out=l.zeros(2, 2))
x.sum_to_size(1, 3), x.sum_to_size((3,)), x.sum_to_size(2, 3) is x, x.sum_to_size(()), m.sum_to_size(1, 3)
x.sum_to_size(4, 3)
x.sum_to_size()
l.empty_strided((2, 3), (1, 2)).stride(), l.empty_strided((2, 3), (0, 1)).stride()
l.empty_strided((2, 3), (4, 1)).untyped_storage().nbytes(), l.empty_strided((0, 3), (4, 1)).stride()
l.empty_strided((2, 3), (1,))
l.empty_strided((2, 3), (-1, 1))
l.empty_strided((-2, 3), (1, 1))
x.new_empty_strided((2, 3), (1, 2), dtype=l.int32).dtype
l.empty_permuted((2, 3, 4), (0, 2, 1)).stride(), l.empty_permuted((2, 0, 4), (0, 2, 1)).stride()
l.empty_permuted((2, 3, 4), (0, 2, -2))
l.empty_permuted((2, 3, 4), (0, 0, 1))
l.empty_permuted((2, 3, 4), (0, 1))
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16), l.frombuffer(np.arange(4.0), dtype=l.float64)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, count=2, offset=2)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.bfloat16), l.frombuffer(bytearray(b"\\0\\1"), dtype=l.bool)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.float32, requires_grad=True)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, requires_grad=True)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, count=20, offset=2)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, offset=20)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, offset=-1)
l.frombuffer(bytearray(b"abcdefgh"), dtype=l.int16, count=0)
l.frombuffer(bytearray(b"abcdefg"), dtype=l.int16)
l.frombuffer(b"abcd", dtype=l.int16)
l.frombuffer("abcd", dtype=l.int16)
l.from_file("no such file", False, 4)
l.from_file(3)
x.clone().set_(), x.clone().set_(x), x.clone().set_(x, 1, (2, 2), (1, 2))
x.clone().set_(x.clone().untyped_storage(), 1, (2, 2), (1, 2)), x.set_(source=x.untyped_storage())
x.clone().set_(i)
x.clone().set_(3)
x.clone().set_(x.untyped_storage(), 1)
x.clone().set_(x.untyped_storage(), -1, (2,))
x.clone().set_(x.untyped_storage(), 1, (2,), (-1,))
x.clone().set_(x.untyped_storage(), 1, (2,), (1, 2))
l.ones(3, requires_grad=True).set_(l.ones(2))
x.untyped_storage(), x.untyped_storage()[3], x.untyped_storage().tolist(), x.untyped_storage().element_size()
x.untyped_storage().clone().fill_(0), x.untyped_storage().copy_(l.ones(6).untyped_storage()), x
x.untyped_storage()[2:4], x.untyped_storage().is_shared(), x.untyped_storage().is_pinned()
"""


@pytest.mark.parametrize("expression", lines_of(SAME))
def test_same_as_torch(expression):
    assert_same_text(expression, 30)


def test_typed_storage():
    """`tensor.storage()` warns once in torch, at an unforeseeable place: so here without the warnings."""
    expressions = """
    x.storage()
    x.storage().size(), len(x.storage()), x.storage().dtype, x.storage().device, x.storage().nbytes()
    x.storage().element_size(), x.storage()[2], x.storage().tolist(), list(x.storage())
    x.storage()[1:3]
    x.storage()[10]
    x.storage().fill_(3), x
    x.storage().__setitem__(0, 7), x
    x.storage().double(), x.storage().clone(), x.storage().copy_(l.ones(6).storage()), x
    x.storage().copy_(l.ones(6, dtype=l.int64).storage())
    x.storage().is_cuda, x.storage().is_shared(), x.storage().is_pinned(), x.storage().type(), x.storage().cpu()
    x.clone().set_(x.storage(), 1, (2, 2)), l.is_storage(x.storage())
    x.clone().set_(x.double().storage())
    """
    for expression in lines_of(expressions):
        tg.storage._reset_warn_typed_storage_removal()
        (expected, _), (actual, noticed) = text_and_warnings(torch, expression), text_and_warnings(tg, expression)
        assert str(actual) == str(expected) and type(actual) is type(expected)
        assert {category for category, _ in noticed} == {"UserWarning"}


NOT_INCLUDED = [
    *("x.to_mkldnn()", "x.to_padded_tensor(0.0)"),
]


@pytest.mark.parametrize("expression", NOT_INCLUDED)
def test_what_is_not_included_says_so(expression):
    error, _ = text_and_warnings(tg, expression)
    assert isinstance(error, NotImplementedError)
    assert re.match(r"\w+: (nested|oneDNN) \w+ are not supported", str(error))


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_is_shared_both_ways():
    buffer = bytearray(8)
    tensor = tg.frombuffer(buffer, dtype=tg.int16)
    tensor[1] = 258
    buffer[6] = 5
    assert list(buffer) == [0, 0, 2, 1, 0, 0, 5, 0] and tensor.tolist() == [0, 258, 0, 5]
    other = tg.from_dlpack(tg.to_dlpack(tensor))
    other[0] = 7
    assert buffer[0] == 7
    assert tg.from_dlpack(tensor, copy=True).fill_(0).numel() == 4 and buffer[0] == 7


@pytest.mark.parametrize("shared", [True, False])
def test_from_file(tmp_path, shared):
    """Writes reach a shared file, and only that; torch reads what was written here, and the other way round."""
    path = str(tmp_path / "numbers")
    torch.from_file(path, shared=True, size=5).copy_(torch.arange(5.0))
    ours = tg.from_file(path, shared=shared, size=4, requires_grad=True)
    assert ours.tolist() == [0, 1, 2, 3] and ours.requires_grad
    ours.detach().fill_(9)
    assert torch.from_file(path, size=5).tolist() == ([9, 9, 9, 9, 4] if shared else [0, 1, 2, 3, 4])
    assert tg.from_file(path).numel() == 0
    expressions = [f"l.from_file({path!r}, False, 6)", f"l.from_file({path!r}, False, 4, dtype=l.bfloat16)",
                   f"l.from_file({path!r}, size=2, dtype=l.int16)"]  # fmt: skip
    for expression in expressions:
        assert_same_text(expression)
    grown = str(tmp_path / "new")
    tg.from_file(grown, True, 3, dtype=tg.uint8).copy_(tg.tensor([1, 2, 3]))
    with open(grown, "rb") as file:
        assert file.read() == b"\1\2\3"


def test_set_lets_a_tensor_be_other_memory():
    """The tensor is a leaf and no view afterwards, and writes reach the new memory only."""
    for l in (torch, tg):
        x, y = l.zeros(2), l.arange(6.0)
        view = x[:1].set_(y)
        assert view.is_leaf
        view.add_(1)
        assert y.tolist() == [1, 2, 3, 4, 5, 6] and x.tolist() == [0, 0]
        computed = l.ones(3, requires_grad=True) * 2
        computed.set_(l.ones(2))
        assert computed.requires_grad and computed.grad_fn is not None
        with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
            computed.sum().backward()
        parameter = l.nn.Parameter(l.ones(3))
        with l.no_grad():
            parameter.set_(l.zeros(2))
        assert parameter.is_leaf and parameter.requires_grad and parameter.tolist() == [0, 0]


def test_fill_diagonal_is_recorded():
    for l in (torch, tg):
        x = l.ones(2, 3, requires_grad=True)
        y = (x * 3).fill_diagonal_(7)
        y.sum().backward()
        assert x.grad.tolist() == [[0, 3, 3], [3, 0, 3]]


@given(st.lists(st.integers(1, 3), min_size=0, max_size=4), st.randoms(use_true_random=False))
def test_dim_order(shape, random):
    """Of dense tensors in any order of their dimensions, some of them expanded."""
    order = list(range(len(shape)))
    random.shuffle(order)
    expanded = [n if n != 1 or random.random() < 0.5 else 2 for n in shape]
    theirs, ours = (l.ones(shape).expand(expanded).permute(order) for l in (torch, tg))
    assert ours.dim_order() == theirs.dim_order()
    results = []
    for tensor in (theirs, ours):
        try:
            results.append(tensor.dim_order(ambiguity_check=True))
        except RuntimeError as error:
            results.append(str(error))
    assert results[0] == results[1]


# --- random numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["cauchy_(1.0, 2.0)", "exponential_(3.0)", "geometric_(0.3)", "log_normal_(0.5, 1.5)",
                                  "uniform_(-1, 2)", "normal_(1, 2)", "random_(5)", "bernoulli_(0.3)"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_same_numbers_from_the_same_seed(call, dtype):
    results = []
    for l in (torch, tg):
        l.manual_seed(3)
        results.append(eval(f"l.empty(3, 7, dtype=l.{dtype}).{call}", {"l": l}).double().tolist())
    np.testing.assert_allclose(results[1], results[0], rtol={"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 1e-6))


# --- unsigned integers of 16, 32 and 64 bits -------------------------------------------------------------------------

UNSIGNED = ("uint16", "uint32", "uint64")
DTYPES = (
    *UNSIGNED, "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip


@pytest.mark.parametrize("unsigned", UNSIGNED)
@pytest.mark.parametrize("other", DTYPES)
def test_promotion_of_unsigned_integers(unsigned, other):
    """As in torch: with themselves and floating-point types only, unless one of the two is weaker."""
    a, b = f"l.{unsigned}", f"l.{other}"
    assert_same_text(f"l.promote_types({a}, {b})")
    assert_same_text(f"l.promote_types({b}, {a})")
    assert_same_text(f"l.can_cast({a}, {b}), l.can_cast({b}, {a})")
    assert_same_text(f"l.result_type(l.tensor([1], dtype={a}), l.tensor([1], dtype={b}))")
    assert_same_text(f"l.result_type(l.tensor([1], dtype={a}), l.tensor(1, dtype={b}))")
    if other != "bool":  # torch refuses a 0-dimensional uint16 beside a bool; there is nothing to be unsure of
        assert_same_text(f"l.result_type(l.tensor(1, dtype={a}), l.tensor([1], dtype={b}))")
    assert_same_text(f"l.tensor([1, 2, 3], dtype={a}).to({b})")
    if not other.startswith("complex"):  # torch warns
        assert_same_text(f"l.tensor([1, 2, 100]).to({b}).to({a})")


@pytest.mark.parametrize("unsigned", UNSIGNED)
@pytest.mark.parametrize("expression", lines_of("""
    l.iinfo(u), l.iinfo(u).max, l.iinfo(u).bits, u.is_signed, u.itemsize, u.is_floating_point, u.to_real()
    l.tensor([1, 2, 3], dtype=u), l.tensor([], dtype=u), l.tensor([l.iinfo(u).max], dtype=u)
    l.tensor(-1, dtype=u)
    l.tensor([l.iinfo(u).max + 1], dtype=u)
    l.tensor([-l.iinfo(u).max - 1], dtype=u)
    l.full((2,), -1, dtype=u), l.zeros(2, dtype=u).fill_(-1), l.zeros(2, dtype=u).fill_(l.iinfo(u).max)
    l.tensor([1, 2], dtype=u) * 2, l.tensor([1, 2], dtype=u) * 1.5, l.tensor([1, 2], dtype=u) * -1
    l.tensor([1, 2], dtype=u) / 2, l.tensor([1, 2], dtype=u).exp(), l.tensor([1, 2], dtype=u).sum()
    l.tensor([1, 2], dtype=u).prod(), l.tensor([1, 2], dtype=u).cumsum(0), l.tensor([1, 2], dtype=u).any()
    l.tensor([1, 2], dtype=u).mean(dtype=l.float32), l.tensor([1, 2], dtype=u) == 2, l.tensor([1, 2], dtype=u) & 2
    l.tensor([2, 1], dtype=u).sort(), l.tensor([2, 1], dtype=u).unique(), l.tensor([2, 1], dtype=u)[l.tensor([1])]
    l.tensor([2, 1], dtype=u).tolist(), l.tensor([2, 1], dtype=u).numpy(), l.tensor(3, dtype=u).item()
    l.tensor([2, 1], dtype=u).view(l.uint8), l.tensor([2, 1], dtype=u).type(), l.tensor([2, 1], dtype=u).repeat(2)
    l.tensor([2, 1], dtype=u).copy_(l.tensor([3.0, 4.0])), l.cat([l.ones(1, dtype=u), l.zeros(1, dtype=u)])
    l.tensor([2.0, -1.5]).to(u), l.tensor([-1]).to(u), l.tensor([2, 1], dtype=u).type("torch.FloatTensor")
    l.tensor([1], dtype=u).requires_grad_()
    l.tensor([1, 2])[l.tensor([1], dtype=u)]
    l.tensor([1], dtype=u) + l.tensor([1])
    l.from_numpy(np.array([1, 2], dtype=str(u)[6:])), l.tensor(np.array([1, 2], dtype=str(u)[6:]))
    l.finfo(u)
"""))  # fmt: skip
def test_unsigned_integers(unsigned, expression):
    assert_same_text(re.sub(r"\bu\b", f"l.{unsigned}", expression.replace("str(u)[6:]", f"'{unsigned}'")), 20)


@pytest.mark.parametrize(
    "expression",
    lines_of("""
    l.tensor([np.int32(3)]), l.tensor([np.int8(3), np.int16(2)]), l.tensor([np.int8(3), 2]), l.tensor([np.uint16(3)])
    l.tensor([np.float16(3), 2]), l.tensor([np.float64(3)]), l.tensor([np.float32(1), np.int64(2)])
    l.tensor([np.complex64(1), 2]), l.tensor([np.complex128(1)]), l.tensor([np.bool_(True)]), l.tensor(np.uint8(3))
    l.tensor([l.tensor(1, dtype=l.int8)]), l.tensor([[l.tensor(1.0, dtype=l.float64)], [2]]), l.tensor([True, 2])
    l.tensor([2**70, 1.5]), l.tensor([2**63], dtype=l.float32), l.tensor(2**70, dtype=l.float32), l.tensor([])
    l.tensor(2**63)
    l.tensor([2**63, -1])
    l.tensor([2**70], dtype=l.int64)
    l.tensor([2**64], dtype=l.uint64)
    l.tensor([2**63, -1], dtype=l.uint64)
    l.tensor([300], dtype=l.uint8)
    l.tensor("a")
    l.tensor(["a"])
    l.tensor(None)
    l.as_tensor("a")
    l.scalar_tensor("a")
"""),
)
def test_dtypes_of_new_tensors(expression):
    """Elements that carry a dtype (NumPy's numbers, tensors) keep it; integers that fit nowhere are errors."""
    assert_same_text(expression)


# --- what is not a tensor --------------------------------------------------------------------------------------------

DOORS = ("", "nn.functional", "special", "linalg", "fft")
NO_TENSORS = {"None": None, "'x'": "x", "[object()]": [object()]}


def _reached(library, door: str):
    for part in door.split(".") if door else ():
        library = getattr(library, part)
    return library


@pytest.mark.parametrize("door", DOORS)
def test_what_is_not_a_tensor_is_a_type_error(door, tmp_path, monkeypatch):
    """Every function, given something else once or for each argument it needs: torch's exception, or TypeError."""
    import inspect

    monkeypatch.chdir(tmp_path)  # `save("x", "x")` writes a file
    ours, theirs = _reached(tg, door), _reached(torch, door)
    functions = {n: f for n, f in vars(ours).items() if inspect.isfunction(f) and not n.startswith(("_", "set_"))}
    assert len(functions) > 15
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in functions.items():
            if not hasattr(theirs, name) or name.startswith("sparse_"):  # which refuse whatever they are given
                continue
            parameters = inspect.signature(function).parameters.values()
            needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            for (label, value), count in itertools.product(NO_TENSORS.items(), {1, max(1, len(needed))}):
                found = []
                for f in (function, getattr(theirs, name)):
                    try:
                        f(*(value,) * count)
                    except Exception as error:
                        found.append(type(error))
                    else:
                        found.append(None)
                if found[0] not in (found[1], TypeError):
                    problems.append(f"{name}({', '.join([label] * count)}): {found[0]}, expected {found[1]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "expression",
    lines_of("""
    l.squeeze([1.0])
    l.nn.functional.dropout(3)
    l.linalg.det("x")
    l.cat([x, 3])
    l.relu_(None)
    l.is_same_size(x, 3)
    l.can_cast(3, l.float32)
    l.promote_types(1, 2)
    l.flatten(x, 5)
"""),
)
def test_messages(expression):
    """PyTorch's words; what fails for another reason keeps its own exception."""
    expected, actual = (text_and_warnings(l, expression)[0] for l in (torch, tg))
    assert type(actual) is type(expected)
    assert str(actual)[:50] == str(expected)[:50]


def test_guards_are_like_what_they_guard():
    """Signature, name and pickle; and parameters by name, with defaults, variadic and only by keyword."""
    import inspect
    import pickle

    assert [*inspect.signature(tg.squeeze).parameters] == ["input", "dim"]
    for function in (tg.squeeze, tg.nn.functional.gelu, tg.nn.functional.softmax, tg.linalg.det, tg.broadcast_tensors):
        assert pickle.loads(pickle.dumps(function)) is function
        assert function.__doc__ and function.__name__
    x = tg.ones(1, 3)
    assert tg.squeeze(input=x).shape == tg.squeeze(x, dim=0).shape == (3,)
    assert tg.sort(x, dim=-1, descending=True, stable=True)[0].shape == (1, 3)
    assert len(tg.broadcast_tensors(x, tg.ones(2, 1))) == 2
    with pytest.raises(TypeError, match=r"squeeze\(\) missing 1 required positional argument: 'input'"):
        tg.squeeze()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        tg.squeeze(x, nonsense=1)


def test_warnings_point_at_the_program():
    """However many frames of the library lie between, and whether a function or a method was called."""
    x = tg.ones(2, 2)
    programs = [lambda: tg.nn.functional.softmax(x), lambda: tg.meshgrid(x[0]), lambda: x[0, 0].T, lambda: x.storage(),
                lambda: tg.nn.functional.mse_loss(x, x[0]), lambda: tg.add(x, 1, out=tg.ones(3))]  # fmt: skip
    for program in programs:
        tg.storage._reset_warn_typed_storage_removal()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program()
        assert [w.filename for w in caught] == [__file__]
