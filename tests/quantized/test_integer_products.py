"""Products of integers of 8 bits: exact by whatever computes them, and under every transform."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.ao.nn.quantized import products
from tensorgrad.kernels.compiled import integer_conv, table
from tensorgrad.ops.pytorch.integer_products import dynamic_linear, integer_sums
from tensorgrad.ops.pytorch.quantized_tensors import from_integers
from tests.support.alike import alike, error
from tests.support.kernels import absent, load_kernels, numpy_only, record_used, used_for_any_size

ROWS = [row for row in table.ROWS if row.kernel.startswith("integer_products.")]
# Rows, columns, depth: whole blocks of every level and what is left of them, and what only NumPy computes.
SIZES = [
    (rows, columns, depth)
    for rows in (0, 1, 2, 3, 5, 40)
    for columns, depth in ((130, 32), (131, 33), (64, 64), (16, 300), (9, 784), (7, 784), (300, 20))
]
wrap = torch.from_numpy


def drawn(rows, columns, depth):
    random = np.random.default_rng(rows * 1000 + columns + depth)
    weight = random.integers(-128, 128, (columns, depth)).astype(np.int8)
    return random, weight


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_are_exact(size, kind):
    random, weight = drawn(*size)
    x = random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (size[0], size[2])).astype(kind)
    x[:1], weight[:1] = np.iinfo(kind).max, -128  # the largest sums
    for zero_point in (0, 255):
        expected = (x.astype(np.int64) - zero_point) @ weight.T.astype(np.int64)
        for stored in (weight, np.asfortranarray(weight)):
            found = integer_sums(wrap(x), wrap(stored), zero_point)
            assert found.dtype is torch.int32 and np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("highest", [127, 255])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_dynamic_products_have_the_same_bits_by_numpy(size, highest):
    random, weight = drawn(*size)
    for scale, each, zero in ((1, 1, 0), (1e-7, size[1], 0), (1e6, size[1], 0), (1, 1, 3)):
        x = (random.standard_normal((size[0], size[2])) * scale).astype(np.float32)
        scales, zeros = random.random(each).astype(np.float32), np.full(each, zero, np.float32)
        for bias in (None, wrap(random.standard_normal(size[1]).astype(np.float32))):
            given = wrap(x), wrap(weight), wrap(scales), wrap(zeros), bias, highest
            found = dynamic_linear(*given)
            with numpy_only():
                assert torch.equal(dynamic_linear(*given), found)


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_the_compiled_kernels_compute_them(monkeypatch):
    load_kernels(ROWS)
    used, x = record_used(monkeypatch, ROWS), torch.randn(3, 96)
    dynamic_linear(x, torch.ones(64, 96, dtype=torch.int8), torch.ones(1), torch.zeros(1))
    torch._int_mm(torch.ones(3, 96, dtype=torch.int8), torch.ones(96, 64, dtype=torch.int8))
    assert used == {"dynamic_linear", "integer_sums"}


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_arrays_that_kernels_do_not_take():
    """Read-only ones at odd addresses, and some with gaps: the result is the same."""
    random, weight = drawn(3, 64, 96)
    x, scales = random.standard_normal((3, 96)).astype(np.float32), np.ones(1, np.float32)
    expected = dynamic_linear(wrap(x), wrap(weight), wrap(scales), torch.zeros(1))
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    wide = np.zeros((3, 192), np.float32)
    wide[:, ::2] = x
    with used_for_any_size(ROWS):
        for other in (odd, wide[:, ::2], np.asfortranarray(x)):
            assert torch.equal(dynamic_linear(wrap(other), wrap(weight), wrap(scales), torch.zeros(1)), expected)


@alike
def test_large_dynamic_layers(torch):
    q, nn, made = torch.ao.quantization, torch.nn, []
    random = np.random.default_rng(0)
    numbers = lambda *shape: torch.from_numpy(random.standard_normal(shape).astype(np.float32))
    model = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 72, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(numbers(*p.shape))
    for config in ({nn.Linear}, {"2": q.per_channel_dynamic_qconfig}):
        small = q.quantize_dynamic(model, config).requires_grad_(False)
        made += [small(numbers(*shape)) for shape in ((1, 100), (7, 100), (2, 3, 100))]
        made += [error(lambda: small(numbers(2, 99))).partition(":")[0]]
    made.append(error(lambda: q.quantize_dynamic(model)(numbers(1, 100) * float("nan"))).partition(":")[0])
    return made


def test_transforms():
    random, weight = drawn(3, 64, 96)
    x = wrap(random.integers(0, 256, (4, 3, 96)).astype(np.uint8))
    product = lambda x: torch._int_mm(x, wrap(weight).t())
    assert torch.equal(torch.vmap(product)(x), torch.stack([product(each) for each in x]))
    assert product(x[0]).shape == torch._int_mm(x[0].to("meta"), wrap(weight).t().to("meta")).shape
    scales, zeros = torch.rand(64), torch.zeros(64)
    numbers = torch.randn(3, 96, requires_grad=True)
    made = dynamic_linear(numbers, wrap(weight), scales, zeros)
    made.sum().backward()
    assert torch.allclose(numbers.grad, (wrap(weight) * scales[:, None]).sum(0).expand(3, 96), rtol=1e-4)


def test_what_does_not_fit_is_refused():
    x, w, one = torch.ones(2, 96), torch.ones(64, 96, dtype=torch.int8), torch.ones(1)
    ints = x.to(torch.uint8)
    for wrong in (
        lambda: integer_sums(ints[:, :95], w, 0), lambda: integer_sums(x, w, 0), lambda: integer_sums(ints, ints, 0),
        lambda: integer_sums(ints[0], w, 0), lambda: dynamic_linear(x[:, :95], w, one, one - 1),
        lambda: dynamic_linear(x, w, torch.ones(2), one - 1), lambda: dynamic_linear(x, w, one, torch.zeros(3)),
        lambda: dynamic_linear(x, w, one, one - 1, torch.ones(63)), lambda: dynamic_linear(x.double(), w, one, one - 1),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"integer_sums: |dynamic_linear: "):
            wrong()


def convolved(random, inputs, outputs, size, places, bias, relu, shape=(2, 13, 11)):
    """The integers of a convolution of random ones, with a scale for each channel."""
    image = from_integers(
        random.integers(0, 256, (shape[0], inputs, *shape[1:])).astype(np.uint8), 0.02, 77, torch.quint8
    )
    weight = torch.quantize_per_channel(
        torch.from_numpy(random.standard_normal((outputs, inputs, *size)).astype(np.float32)),
        torch.from_numpy(random.uniform(0.01, 0.03, outputs)), torch.zeros(outputs, dtype=torch.int64), 0, torch.qint8,
    )  # fmt: skip
    bias = torch.from_numpy(random.standard_normal(outputs).astype(np.float32)) if bias else None
    return products.conv(image, weight, bias, *places, 1, "zeros", 0.7, 120, relu).int_repr()


# Inputs, outputs, size, and stride, padding and dilation: pieces shorter than a register, as long, and longer.
CONVOLUTIONS = [
    (3, 32, (3, 3), ((2, 2), (1, 1), (1, 1))), (32, 4, (1, 1), ((1, 1), (0, 0), (1, 1))),
    (17, 21, (3, 2), ((1, 2), (2, 1), (1, 1))), (64, 20, (3, 3), ((1, 1), (1, 1), (1, 1))),
    (5, 18, (3, 3), ((1, 1), (4, 3), (3, 2))), (90, 7, (2, 3), ((3, 1), (0, 2), (2, 1))),
]  # fmt: skip


@pytest.mark.parametrize("given", CONVOLUTIONS, ids=str)
def test_convolutions_have_the_same_integers_by_numpy(given, monkeypatch):
    if not absent():
        monkeypatch.setattr(integer_conv, "_SMALL", 0)
    for parts in (1, 1 << 17):  # pixels of one row of the result at a time, and of several
        if not absent():
            monkeypatch.setattr(integer_conv, "_AT_A_TIME", parts)
        for bias, relu in ((True, False), (False, True)):
            found = convolved(np.random.default_rng(1), *given, bias, relu)
            with numpy_only():
                expected = convolved(np.random.default_rng(1), *given, bias, relu)
            assert torch.equal(found, expected) and len(found.unique()) > 20


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_the_compiled_kernel_computes_convolutions(monkeypatch):
    rows = [row for row in table.ROWS if row.kernel == "integer_conv.convolution"]
    load_kernels(rows)
    used, place = record_used(monkeypatch, rows), ((1, 1), (1, 1), (1, 1))
    convolved(np.random.default_rng(1), 16, 16, (3, 3), place, True, False)
    assert used == {"integer_convolution"}
    used.clear()
    convolved(np.random.default_rng(1), 16, 3, (3, 3), place, True, False)  # fewer outputs than a block has
    convolved(np.random.default_rng(1), 2, 4, (1, 1), ((1, 1), (0, 0), (1, 1)), True, False)
    assert not used
