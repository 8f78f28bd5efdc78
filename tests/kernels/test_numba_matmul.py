"""Compiled matrix products against NumPy's: odd shapes, memory orders, stacks, bias, nan, threads."""

import tracemalloc

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.array import matmul as arrays
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tensorgrad.kernels.compiled import matmul
from tests.support.compare import assert_close, normal
from tests.support.kernels import used_for_any_size

OURS = [row for row in table.ROWS if row.kernel.partition(".")[0] == "matmul"]
SHAPES = [(4, 4, 4), (5, 70, 9), (33, 17, 50), (300, 600, 70), (16, 1030, 500), (8, 9, 1100), (200, 40, 16), (64, 4, 5)]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Uses the kernels of this file for products of any size."""
    limits = dict.fromkeys(("_FEW", "_FEW_ALONE", "_ALONE", "_FEW_ALONG"), 0)
    limits |= {"_TINY": -1, "_TINY_OF_MANY": -1}  # test_numba_small.py has the kernels of few numbers
    with pytest.MonkeyPatch.context() as patch, used_for_any_size(OURS):
        for name, limit in limits.items():
            patch.setattr(matmul, name, limit)
        yield


def turned(x):
    """The same numbers, the last dimension but one being contiguous."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def assert_near(found, expected):
    """Asserts the result of a kernel, which is contiguous, within a part of its largest value."""
    assert found is not NotImplemented and found.flags.c_contiguous
    assert_close(found, expected, 1e-4, atol=2e-6, relative_to_largest=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stack", [(), (3,), (2, 3)])
def test_all_orders(shape, stack):
    rng, (rows, inner, columns) = np.random.default_rng(0), shape
    a, b = normal(*stack, rows, inner, seed=rng), normal(*stack, inner, columns, seed=rng)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    expected = expected.astype(np.float32)
    for left in (a, turned(a)):
        for right in (b, turned(b)):
            assert_near(matmul.matmul(left, right), expected)
            assert_near(matmul.nt(left, right.swapaxes(-1, -2)), expected)
            assert_near(matmul.tn(left.swapaxes(-1, -2), right), expected)


# Factors that are read where they are, or not: few and many columns, many rows, an inner dimension in several parts.
PLACES = [(70, 40, 48), (32, 50, 288), (528, 30, 32), (1024, 128, 32), (40, 560, 224), (28, 300, 320)]


@pytest.mark.parametrize("shape", PLACES)
def test_results_do_not_depend_on_memory_order(shape):
    rng, (rows, inner, columns) = np.random.default_rng(7), shape
    a, b, bias = normal(rows, inner, seed=rng), normal(inner, columns, seed=rng), normal(columns, seed=rng)
    found = [matmul.mm(left, right) for left in (a, turned(a)) for right in (b, turned(b))]
    found += [matmul.tn(left.T, right) for left in (a, turned(a)) for right in (b, turned(b))]
    assert_near(found[0], (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    begun = [matmul.linear(a, weight.T, bias) for weight in (b, turned(b))]
    np.testing.assert_array_equal(begun[0], begun[1])
    assert_near(begun[0], found[0] + bias)


def test_kernels_free_their_own_arrays():
    a, b = normal(40, 300, seed=8), normal(300, 100, seed=9)
    matmul.mm(a, b)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            matmul.mm(a, b)
        after, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
    assert most - before > 100_000  # these arrays are traced


@pytest.mark.parametrize("stack", [(3,), (2, 3)])
def test_stacks_of_columns_by_rows(stack):
    rng = np.random.default_rng(2)
    a, b = normal(*stack, 40, 1, seed=rng), normal(*stack, 1, 30, seed=rng)
    apart = np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1)  # the stack is not the outermost in memory
    for left in (a, apart):
        expected = (left.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        assert_near(matmul.matmul(left, b), expected)
        assert_near(matmul.nt(left, b.swapaxes(-1, -2)), expected)
        assert_near(matmul.tn(left.swapaxes(-1, -2), b), expected)
        assert_near(arrays.matmul(np, left, b), expected)
        assert_near(arrays.tn(np, left.swapaxes(-1, -2), b), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_linear(shape):
    rng, (rows, inner, columns) = np.random.default_rng(1), shape
    x, w, bias, g = (
        normal(rows, inner, seed=rng),
        normal(columns, inner, seed=rng),
        normal(columns, seed=rng),
        normal(rows, columns, seed=rng),
    )
    for weight in (w, turned(w)):
        for shift in (None, bias):
            assert_near(matmul.linear(x, weight, shift), arrays.linear(np, x, weight, shift))
            assert_near(matmul.linear(x[None], weight, shift), arrays.linear(np, x[None], weight, shift))
        found = matmul.linear_backward(g, x, weight, bias.shape, (True, True, True))
        for ours, wanted in zip(
            found, arrays.linear_backward(np, g, x, weight, bias.shape, (True, True, True)), strict=True
        ):
            assert_near(ours, wanted)
        stacks = matmul.linear_backward(g[None], x[None], weight, bias.shape, (True, True, True))
        for ours, wanted in zip(
            stacks, arrays.linear_backward(np, g[None], x[None], weight, bias.shape, (True, True, True)), strict=True
        ):
            assert_near(ours, wanted)
        assert stacks[0].shape == (1, *x.shape)
        some = matmul.linear_backward(g, x, None, bias.shape, (False, True, True))
        assert some[0] is None
        assert_near(some[1], found[1])
        assert_near(some[2], found[2])
    assert matmul.linear_backward(g, None, w, None, (True, False, False))[1:] == (None, None)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7, 8, 9, 23, 24, 25])
@pytest.mark.parametrize(("inner", "columns"), [(16, 4), (31, 13), (70, 600), (1100, 513), (2053, 48)])
def test_few_rows(rows, inner, columns):
    rng = np.random.default_rng(3)
    x, w, bias = normal(rows, inner, seed=rng), normal(inner, columns, seed=rng), normal(columns, seed=rng)
    expected = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float32)
    for right in (w, turned(w)):
        assert_near(matmul.matmul(x, right), expected)
        assert_near(matmul.mm(x, right), expected)
        assert_near(matmul.linear(x, right.T, None), expected)
        assert_near(matmul.linear(x[None], right.T, bias), expected[None] + bias)
        assert_near(matmul.addmm(bias, x, right, 1, 1), expected + bias)
        right = right.copy("K")
        right[inner - 1, columns - 1] = np.inf  # reaches its own column only
        finite = np.isfinite(matmul.matmul(x, right))
        assert finite[:, :-1].all() and not finite[:, -1].any()


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, -2.0), (1, 3)])
def test_addmm(beta, alpha):
    rng = np.random.default_rng(2)
    a, b = normal(20, 33, seed=rng), normal(33, 50, seed=rng)
    for c in (normal(50, seed=rng), normal(20, 50, seed=rng), normal(20, 1, seed=rng), normal(1, seed=rng)):
        before = c.copy()
        assert_near(matmul.addmm(c, a, b, beta, alpha), arrays.addmm(np, c, a, b, beta, alpha))
        np.testing.assert_array_equal(c, before)


def test_small_matrices_of_a_stack_are_shared_too(monkeypatch):
    monkeypatch.setattr(matmul, "_ALONE", 1 << 18)
    rng = np.random.default_rng(3)
    a, b = normal(4, 10, 20, 30, seed=rng), normal(4, 10, 30, 8, seed=rng)
    assert_near(matmul.matmul(a, b), a @ b)
    assert_near(matmul.tn(np.ascontiguousarray(a.swapaxes(-1, -2)), b), a @ b)
    with np.errstate(over="raise"):
        assert np.isinf(matmul.matmul(np.full((5, 4, 4), 3e38, np.float32), np.full((5, 4, 4), 3e38, np.float32))).all()


def gapped(rng, *shape):
    """A stack whose matrices and rows have gaps between them, as heads of attention lie."""
    return normal(shape[2], shape[0], shape[1] * shape[3] + 3, seed=rng)[..., 3:].reshape(
        shape[2], shape[0], shape[1], shape[3]
    ).transpose(1, 2, 0, 3)  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 4, 4), (5, 70, 9), (33, 17, 50), (16, 5, 64)])
@pytest.mark.parametrize("stack", [(1, 3), (3, 1), (4, 5)])
def test_stacks_with_gaps(monkeypatch, shape, stack):
    monkeypatch.setattr(matmul, "_ALONE", 1 << 18)
    rng, (rows, inner, columns) = np.random.default_rng(6), shape
    for a in (gapped(rng, *stack, rows, inner), gapped(rng, *stack, inner, rows).swapaxes(-1, -2)):
        for b in (gapped(rng, *stack, inner, columns), gapped(rng, *stack, columns, inner).swapaxes(-1, -2)):
            expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
            for left in (a, np.ascontiguousarray(a), turned(a)):
                assert_near(matmul.matmul(left, b), expected)
                assert_near(matmul.nt(left, b.swapaxes(-1, -2)), expected)
                assert_near(matmul.tn(left.swapaxes(-1, -2), b), expected)
            if stack[0] == 1:
                assert_near(matmul.bmm(a[0], b[0]), expected[0])
    few, b = gapped(rng, 1, 3, rows, inner), gapped(rng, 4, 3, inner, columns)
    few = np.lib.stride_tricks.as_strided(few, (4, *few.shape[1:]), (0, *few.strides[1:]))
    assert_near(matmul.matmul(few, b), few @ b)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_stays_where_it_belongs(value):
    rng = np.random.default_rng(4)
    a, b = normal(21, 600, seed=rng), normal(600, 37, seed=rng)
    a[20, 3], b[599, 36] = value, value
    finite = np.isfinite(matmul.matmul(a, b))
    assert finite[:20, :36].all() and not finite[20].any() and not finite[:, 36].any()


def test_what_is_declined():
    rng = np.random.default_rng(5)
    a, b = normal(8, 12, seed=rng), normal(12, 6, seed=rng)
    assert matmul.matmul(a, b[:, ::2]) is NotImplemented
    assert matmul.matmul(a.astype(np.float64), b) is NotImplemented
    assert matmul.matmul(a, b[:5]) is NotImplemented
    assert matmul.matmul(a[0], b) is NotImplemented
    assert matmul.matmul(a[None], b[None].repeat(2, 0)) is NotImplemented
    assert matmul.mm(a[None], b[None]) is NotImplemented and matmul.bmm(a, b) is NotImplemented
    assert matmul.linear(a, b, None) is NotImplemented
    assert matmul.linear(a, b.T.copy(), np.zeros(5, np.float32)) is NotImplemented
    assert matmul.addmm(b, a, b[:5], 1, 1) is NotImplemented
    for shape in ((0, 12), (1, 12)):  # empty, or one row, for which the BLAS copies nothing
        assert matmul.matmul(normal(*shape, seed=rng), b) is NotImplemented
        assert tg.matmul(tg.from_numpy(normal(*shape, seed=rng)), tg.from_numpy(b)).shape == (shape[0], 6)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        tg.from_numpy(a) @ tg.from_numpy(b[:5])
    with pytest.raises(RuntimeError, match="expanded size"):
        tg.addmm(tg.zeros(7), tg.from_numpy(a), tg.from_numpy(b))


def test_results_do_not_depend_on_the_threads():
    rng = np.random.default_rng(6)
    x, w, bias = (tg.from_numpy(normal(*s, seed=rng)).requires_grad_() for s in ((130, 300), (190, 300), (190,)))
    few, wide = tg.from_numpy(normal(5, 300, seed=rng)), tg.from_numpy(normal(300, 1700, seed=rng))
    stack = tg.from_numpy(normal(9, 20, 21, seed=rng))
    before, results = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            tg.set_num_threads(threads)
            out = tg.nn.functional.linear(x, w, bias)
            both = few @ wide, tg.nn.functional.linear(few, w.detach())
            results.append([out.detach(), *both, stack @ stack.mT, *tg.autograd.grad((out * out).sum(), [x, w, bias])])
    finally:
        tg.set_num_threads(before)
    for other in results[1:]:
        assert all(bool((a == b).all()) for a, b in zip(results[0], other, strict=True))
