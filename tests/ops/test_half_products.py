"""Products of bfloat16 and float16: float32 sums, rounded once."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.compiled import casts, table
from tests.support.alike import alike
from tests.support.kernels import absent, load_kernels, numpy_only, record_used, used_for_any_size

KINDS = [torch.bfloat16, torch.float16]
ROWS = [row for row in table.ROWS if row.op == "half_product"]
PRODUCTS = [row for row in table.ROWS if row.op in ("linear", "matmul", "mm", "bmm", "matmul_nt", "matmul_tn")]
needs_kernels = pytest.mark.skipif(bool(absent()), reason=absent())
SIZES = [(rows, columns, depth) for rows in (1, 2, 6, 7, 40) for columns, depth in ((64, 64), (37, 130), (9, 513))]


def drawn(dtype, *shape, seed=0):
    numbers = np.random.default_rng((sum(shape), seed)).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(numbers).to(dtype)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_results_are_sums_of_float32_rounded_once(dtype, size):
    """They are within half a step and the error of a float32 sum of the exact ones, and nearly all are NumPy's."""
    rows, columns, depth = size
    step = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
    for biased in (False, True):
        same = []
        for seed in range(8):
            x, w = drawn(dtype, rows, depth, seed=seed), drawn(dtype, columns, depth, seed=seed)
            bias = drawn(dtype, columns, seed=seed) if biased else None
            exact = x.double() @ w.double().t() + (bias.double() if biased else 0)
            slack = 1e-6 * (x.double().abs() @ w.double().abs().t() + 1)
            found = [torch.nn.functional.linear(x, w, bias)]
            with numpy_only():
                found.append(torch.nn.functional.linear(x, w, bias))
            for made in found if biased else (*found, x @ w.t()):
                assert made.dtype is dtype and made.shape == exact.shape
                assert ((made.double() - exact).abs() <= exact.abs() * step + slack).all()
            same.append((found[0] == found[1]).float().mean())
        assert sum(same) / len(same) > 0.98


@needs_kernels
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_number_is_widened_and_rounded_as_by_numpy(dtype):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    wide, number = every.astype(np.float32), ~np.isnan(every.astype(np.float32))
    found = casts.cast(every, np.dtype(np.float32))
    assert (
        np.array_equal(found[number].view(np.uint32), wide[number].view(np.uint32)) and np.isnan(found[~number]).all()
    )
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)
    finite = np.sort(wide[np.isfinite(wide)])
    between = (finite[1:].astype(np.float64) + finite[:-1]) / 2  # equally near to two
    numbers = np.concatenate([random, finite, between.astype(np.float32), [np.inf, -np.inf, np.nan]]).astype(np.float32)
    out = casts.cast(numbers, np.dtype(dtype.numpy)).view(np.uint16)
    with np.errstate(all="ignore"):
        expected = numbers.astype(dtype.numpy)
    number = ~np.isnan(numbers)
    assert np.array_equal(out[number], expected[number].view(np.uint16))
    assert np.isnan(out[~number].view(dtype.numpy).astype(np.float32)).all()


@needs_kernels
def test_the_compiled_kernels_compute_them(monkeypatch):
    load_kernels(ROWS)
    used = record_used(monkeypatch, ROWS)
    for dtype in KINDS:
        for rows in (1, 20):
            x, w = drawn(dtype, rows, 1024), drawn(dtype, 64, 1024)
            for call in (torch.nn.functional.linear, lambda x, w: x @ w.t(), lambda x, w: torch.mm(x, w.t())):
                call(x, w)
                assert used == {"half_product"}
                used.clear()


@needs_kernels
def test_a_row_has_the_same_bits_alone_and_among_a_few():
    for dtype in KINDS:
        x, w, b = drawn(dtype, 6, 300), drawn(dtype, 72, 300), drawn(dtype, 72)
        whole = torch.nn.functional.linear(x, w, b)
        assert all(torch.equal(torch.nn.functional.linear(x[n : n + 1], w, b)[0], whole[n]) for n in range(6))


@needs_kernels
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("size", [(7, 33, 20), (200, 31, 17), (65, 500, 70), (9, 64, 1100), (800, 16, 1030)], ids=str)
@pytest.mark.parametrize("turned", ["neither", "first", "second", "both"])
def test_products_of_any_layout(size, turned, dtype, monkeypatch):
    """Of whole numbers, of which every sum is exact; in more rows, columns and terms than are computed at a time."""
    load_kernels(ROWS)
    used = record_used(monkeypatch, ROWS)
    rows, columns, depth = size
    random = np.random.default_rng(rows)

    def whole(*shape):
        return torch.from_numpy(random.integers(-2, 3, shape).astype(np.float32)).to(dtype)

    threads = torch.get_num_threads()
    with used_for_any_size(PRODUCTS):
        for lead in ((), (3,)):
            x = whole(*lead, depth, rows).mT if turned in ("first", "both") else whole(*lead, rows, depth)
            y = whole(*lead, columns, depth).mT if turned in ("second", "both") else whole(*lead, depth, columns)
            exact = (x.double() @ y.double()).to(dtype)
            try:
                for count in (1, 2, 5):
                    torch.set_num_threads(count)
                    assert torch.equal(x @ y, exact)
            finally:
                torch.set_num_threads(threads)
    assert used == {"half_product"}


@alike
def test_products_and_gradients(torch):
    made = []
    for dtype in (torch.bfloat16, torch.float16):
        for rows in (1, 3, 20):
            random = np.random.default_rng(rows)
            x, w, b = (
                torch.from_numpy(random.integers(-8, 9, shape).astype(np.float32)).to(dtype).requires_grad_()
                for shape in ((rows, 96), (64, 96), (64,))
            )  # whole numbers: their sums are exact in any order
            out = torch.nn.functional.linear(x, w, b)
            out.float().sum().backward()
            made += [out.float(), x.grad.float(), w.grad.float(), b.grad.float()]
    return made


@pytest.mark.parametrize("name", ["linear", "mm", "bmm", "addmm", "bilinear"])
def test_operands_of_two_dtypes_are_refused(name):
    """Of any size: large operands of two bytes become float32 for the product."""
    for rows in (2, 200):
        for first, second in ((torch.bfloat16, torch.float32), (torch.float32, torch.float16), KINDS):
            x, y = torch.ones(rows, 128, dtype=first), torch.ones(128, 128, dtype=second)
            calls = {
                "linear": lambda x=x, y=y: torch.nn.functional.linear(x, y), "mm": lambda x=x, y=y: x @ y,
                "bmm": lambda x=x, y=y: torch.bmm(x[None], y[None]),
                "addmm": lambda x=x, y=y: torch.addmm(x.new_ones(128), x, y),
                "bilinear": lambda x=x, y=y: torch.nn.functional.bilinear(x, x, y.expand(2, 128, 128)),
            }  # fmt: skip
            with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
                calls[name]()
