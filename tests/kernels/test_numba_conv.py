"""Compiled convolution and pooling against NumPy's: strides, paddings, dilations, groups, gaps, nan, threads."""

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.array import conv as conv_arrays
from tensorgrad.kernels.array import pool as pool_arrays
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tensorgrad.kernels.compiled import conv as conv_loops
from tensorgrad.kernels.compiled import images, pool
from tensorgrad.kernels.compiled.simd import tiles
from tests.support.compare import assert_close, normal
from tests.support.kernels import used_for_any_size

F = tg.nn.functional
OURS = [row for row in table.ROWS if row.kernel.rpartition(".")[0] in ("conv", "pool")]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Uses the kernels of this file for arrays of any size."""
    with used_for_any_size(OURS):
        yield


def assert_near(found, expected, what):
    """Asserts the result of a kernel within a part of its largest value."""
    assert found is not NotImplemented, what
    assert_close(found, expected, 1e-4, atol=1e-5, relative_to_largest=True, what=what)


def check_conv(rng, batch, channels, outs, size, kernel, stride, padding, dilation, groups):
    """Forward and both gradients of one convolution."""
    what = str((batch, channels, outs, size, kernel, stride, padding, dilation, groups))
    x, w = normal(batch, channels, *size, seed=rng), normal(outs, channels // groups, *kernel, seed=rng)
    bias = normal(outs, seed=rng) if batch % 2 else None
    rest = (stride, padding, dilation, groups)
    expected = conv_arrays.conv(np, x, w, bias, *rest)
    assert_near(conv_loops.conv(x, w, bias, *rest), expected, what)
    g = normal(*expected.shape, seed=rng)
    gi = conv_loops.conv_grad_input(g, w, x.shape, *rest)
    assert_near(gi, conv_arrays.conv_grad_input(np, g, w, x.shape, *rest), "input " + what)
    gw = conv_loops.conv_grad_weight(g, x, w.shape, *rest)
    assert_near(gw, conv_arrays.conv_grad_weight(np, g, x, w.shape, *rest), "weight " + what)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (7, 7), (2, 3)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize(("channels", "outs", "groups"), [(3, 16, 1), (5, 7, 1), (4, 4, 4), (4, 8, 4), (8, 12, 2)])
def test_convolution(kernel, stride, channels, outs, groups):
    rng = np.random.default_rng(0)
    for size in ((7, 7), (9, 21), (40, 3)):
        for padding in ((0, 0), (1, 1), (3, 2)):
            for dilation in ((1, 1), (2, 2)):
                spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
                if all(n + 2 * p >= s for n, p, s in zip(size, padding, spans, strict=True)):
                    batch = int(rng.integers(1, 5))
                    check_conv(rng, batch, channels, outs, size, kernel, stride, padding, dilation, groups)


@pytest.mark.parametrize("outs", [1, 2, 8, 24, 25, 64])
@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (5, 1), (6, 2)])
def test_weights_where_they_are(outs, channels, groups):
    """Few points: blocks of outputs that are full read the weights in their own order, others a packed copy."""
    rng = np.random.default_rng(3)
    for batch, size in ((1, (7, 7)), (3, (14, 14)), (1, (28, 28)), (5, (14, 15))):
        check_conv(rng, batch, channels, outs * groups, size, (3, 3), (1, 1), (1, 1), (1, 1), groups)
        check_conv(rng, batch, channels, outs * groups, size, (3, 2), (2, 1), (1, 0), (1, 2), groups)
    x, w = normal(1, channels, 9, 9, seed=rng), normal(outs * groups, channels // groups, 3, 6, seed=rng)[..., ::2]
    rest = ((1, 1), (0, 0), (1, 1), groups)
    assert_near(conv_loops.conv(x, w, None, *rest), conv_arrays.conv(np, x, w, None, *rest), "weights with gaps")


@pytest.mark.parametrize(
    "shape",
    [(1, 64, 32, (70, 70)), (17, 33, 9, (7, 7)), (40, 2, 3, (4, 4)), (2, 1, 70, (150, 20)), (3, 70, 1, (10, 90))],
)
def test_tiles(shape):
    """Images of several tiles, tiles of several images, the last of them not full; several chunks of channels."""
    rng = np.random.default_rng(1)
    check_conv(rng, *shape, (3, 3), (1, 1), (1, 1), (1, 1), 1)
    check_conv(rng, *shape, (3, 3), (2, 2), (1, 1), (1, 1), 1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("outs", [2, 3, 8, 25, 64, 65])
def test_windows_of_one_point(outs, groups):
    """Rows of whole vectors are read where they are: in images of one tile and of several, and with groups."""
    rng = np.random.default_rng(5)
    for batch, size in ((1, (8, 8)), (2, (32, 32)), (1, (64, 64)), (2, (48, 96)), (3, (7, 9))):
        check_conv(rng, batch, 5 * groups, outs * groups, size, (1, 1), (1, 1), (0, 0), (1, 1), groups)


@pytest.fixture
def innermost(monkeypatch):
    """Images (or channels, for a weight's gradient) lie innermost whatever it costs."""
    monkeypatch.setattr(images, "convolve_cost", lambda *shape: 0.0)
    monkeypatch.setattr(images, "correlate_cost", lambda *shape: 0.0)
    plans = (conv_loops._plan, conv_loops._forwards, conv_loops._backwards, conv_loops._correlate_costs,
             conv_loops._correlation)  # fmt: skip
    for each in plans:
        each.cache_clear()
    yield
    for each in plans:
        each.cache_clear()


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 3), (5, 5)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize(
    ("channels", "outs", "groups"), [(3, 16, 1), (17, 9, 1), (4, 4, 4), (40, 36, 2), (1, 70, 1), (22, 40, 2)]
)
def test_images_innermost(innermost, kernel, stride, channels, outs, groups):
    rng = np.random.default_rng(13)
    for size in ((7, 7), (9, 21), (2, 2), (4, 4)):
        for padding, dilation in (((0, 0), (1, 1)), ((1, 2), (1, 1)), ((2, 2), (2, 2))):
            spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
            if all(n + 2 * p >= s for n, p, s in zip(size, padding, spans, strict=True)):
                for batch in (1, int(rng.choice([3, 16, 17, 35, 100]))):
                    check_conv(rng, batch, channels, outs, size, kernel, stride, padding, dilation, groups)


@pytest.mark.parametrize("batch", [3, 40])
@pytest.mark.parametrize("layout", ["gaps", "transposed", "expanded", "every other"])
def test_weights_with_gaps_of_innermost_images(innermost, layout, batch):
    rng = np.random.default_rng(19)
    whole = normal(9, 8, 3, 6, seed=rng)
    w = {
        "gaps": whole[:, :5, :, :3], "transposed": whole.transpose(1, 0, 2, 3)[:8, :5], "every other": whole[::2, :5],
        "expanded": np.broadcast_to(whole[:1], whole.shape)[:, :5],
    }[layout]  # fmt: skip
    for kernel in (w, w[..., :1, :1]):
        x, rest = normal(batch, 5, 6, 7, seed=rng), ((1, 1), (1, 1), (1, 1), 1)
        expected = conv_arrays.conv(np, x, kernel, None, *rest)
        assert_near(conv_loops.conv(x, kernel, None, *rest), expected, layout)
        g = normal(*expected.shape, seed=rng)
        found = conv_loops.conv_grad_input(g, kernel, x.shape, *rest)
        assert_near(found, conv_arrays.conv_grad_input(np, g, kernel, x.shape, *rest), layout)


def test_images_innermost_in_strips(innermost):
    """More source than fits the cache, more than three panels of images or channels, sums in several parts."""
    rng = np.random.default_rng(14)
    check_conv(rng, 70, 24, 20, (24, 24), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    check_conv(rng, 33, 130, 100, (6, 5), (3, 3), (2, 2), (1, 1), (1, 1), 1)


def test_images_are_divided():
    """Whole vectors of images lie innermost; what is left over may be done by tiles."""
    rng = np.random.default_rng(15)
    plan = conv_loops._plan(False, 100, (14, 14), None, (3, 3), (1, 1), (1, 1), (1, 1), 1, 32, 64)
    assert plan.innermost % tiles.LANES == 0 or plan.innermost == 100
    check_conv(rng, 100, 32, 64, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    check_conv(rng, 18, 64, 32, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), 1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_images_innermost_keep_to_themselves(innermost, value):
    """What is not a number stays in its image and channel, also in vectors that are not full of images."""
    rng = np.random.default_rng(16)
    x, w, g = normal(19, 5, 6, 6, seed=rng), normal(9, 5, 3, 3, seed=rng), normal(19, 9, 6, 6, seed=rng)
    x[18, 4, 0, 5] = g[18, 8, 5, 0] = value
    rest = ((1, 1), (1, 1), (1, 1), 1)
    finite = np.isfinite(conv_loops.conv(x, w, None, *rest))
    assert finite[:18].all()
    np.testing.assert_array_equal(finite, np.isfinite(conv_arrays.conv(np, x, w, None, *rest)))
    finite = np.isfinite(conv_loops.conv_grad_input(g, w, x.shape, *rest))
    assert finite[:18].all() and not finite[18].all()
    finite = np.isfinite(conv_loops.conv_grad_weight(g, x, w.shape, *rest))
    assert finite[:8, :4].all() and not finite[:8, 4].all() and not finite[8].all()


def test_every_small_geometry():
    """Sizes from 1 on, with strides, paddings and dilations beyond them, and few channels: and what taps reach."""
    rng, done = np.random.default_rng(18), 0
    while done < 1500:
        dims = int(rng.integers(1, 3))
        size, kernel = rng.integers(1, 6, dims), rng.integers(1, 4, dims)
        stride, padding, dilation = rng.integers(1, 4, dims), rng.integers(0, 4, dims), rng.integers(1, 3, dims)
        if (size + 2 * padding < dilation * (kernel - 1) + 1).any():
            continue
        batch, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        channels, outs = (int(n) * groups for n in rng.integers(1, 4, 2))
        size, *rest = (tuple(int(n) for n in what) for what in (size, kernel, stride, padding, dilation))
        check_conv(rng, batch, channels, outs, size, *rest, groups)
        done += 1


def test_small_geometry_of_many_images():
    """As a user meets it, with the sizes that tables of taps go by."""
    x = tg.ones(600, 1, 1, 1, requires_grad=True)
    y = F.conv2d(x, tg.tensor([[[[1.0, 2.0, 3.0]]]]), None, 2, 2)
    (y * tg.arange(1.0, 7.0).view(1, 3, 2)).sum().backward()
    assert (x.grad == 13).all()


def test_one_dimension():
    rng = np.random.default_rng(2)
    for stride, padding, dilation in ((1, 0, 1), (2, 3, 2), (5, 1, 1)):
        check_conv(rng, 3, 6, 4, (50,), (4,), (stride,), (padding,), (dilation,), 2)


def test_transposed():
    rng = np.random.default_rng(3)
    for dims in (1, 2):
        x, w, bias = normal(2, 6, *[9] * dims, seed=rng), normal(6, 5, *[3] * dims, seed=rng), normal(10, seed=rng)
        for stride, padding, extra, dilation in ((1, 0, 0, 1), (2, 1, 1, 1), (3, 2, 0, 2)):
            rest = ((stride,) * dims, (padding,) * dims, (extra,) * dims, (dilation,) * dims, 2)
            expected = conv_arrays.conv_transpose(np, x, w, bias, *rest)
            assert_near(conv_loops.conv_transpose(x, w, bias, *rest), expected, str(rest))


def test_taps_that_reach_nothing():
    """A stride beyond the kernel leaves input points without a gradient."""
    check_conv(np.random.default_rng(4), 2, 3, 4, (9, 9), (1, 1), (2, 3), (0, 0), (1, 1), 1)
    check_conv(np.random.default_rng(4), 2, 3, 4, (9, 9), (2, 1), (3, 4), (1, 0), (1, 1), 1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_stays_where_it_belongs(value):
    """What lies between the rows of a tile must not reach a weight's gradient that never reads it."""
    rng = np.random.default_rng(5)
    x, g = normal(1, 2, 6, 6, seed=rng), normal(1, 3, 6, 6, seed=rng)
    x[0, 0, 0, 5] = value
    rest = ((1, 1), (1, 1), (1, 1), 1)
    found = F.conv2d(tg.from_numpy(x), w := tg.ones(3, 2, 3, 3, requires_grad=True), None, 1, 1)
    found.backward(tg.from_numpy(g))
    np.testing.assert_allclose(
        w.grad.numpy(), conv_arrays.conv_grad_weight(np, g, x, (3, 2, 3, 3), *rest), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(
        np.isfinite(found.detach().numpy()),
        np.isfinite(conv_arrays.conv(np, x, np.ones((3, 2, 3, 3), np.float32), None, *rest)),
    )


def test_gaps_and_other_dtypes():
    rng = np.random.default_rng(6)
    x, w = normal(2, 8, 9, 12, seed=rng), normal(4, 4, 3, 3, seed=rng)
    whole = conv_arrays.conv(np, x[:, ::2], w, None, (1, 1), (1, 1), (1, 1), 1)
    assert_near(conv_loops.conv(x[:, ::2], w, None, (1, 1), (1, 1), (1, 1), 1), whole, "gaps")
    wide = F.conv2d(tg.from_numpy(x[:, ::2].astype(np.float64)), tg.from_numpy(w.astype(np.float64)), padding=1)
    assert wide.dtype is tg.float64 or wide.dtype == tg.float64
    np.testing.assert_allclose(wide.numpy(), whole, rtol=1e-4, atol=1e-4)
    cube = tg.from_numpy(normal(1, 2, 4, 4, 4, seed=rng))
    assert F.conv3d(cube, tg.ones(3, 2, 2, 2, 2)).shape == (1, 3, 3, 3, 3)
    long = tg.from_numpy(normal(1, 1, tiles.WIDEST + 1, seed=rng))
    assert F.conv1d(long, tg.ones(1, 1, 2)).shape == (1, 1, tiles.WIDEST)
    assert F.conv2d(tg.zeros(0, 3, 8, 8), tg.ones(4, 3, 3, 3)).shape == (0, 4, 6, 6)


def test_gradients_through_the_op():
    """The ops' own rows, with a gradient that has no memory of its own, and a second derivative."""
    rng = np.random.default_rng(7)
    x = tg.from_numpy(normal(2, 4, 10, 10, seed=rng)).requires_grad_()
    layer = tg.nn.Conv2d(4, 6, 3, stride=2, padding=1)

    def run():
        out = layer(x)
        (gx,) = tg.autograd.grad(out.sum(), x, create_graph=True)
        return [*tg.autograd.grad((gx * gx).sum() + out.sum(), [layer.weight]), gx.detach()]

    fast = run()
    tg.use_deterministic_algorithms(True)
    try:
        slow = run()
    finally:
        tg.use_deterministic_algorithms(False)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def pooled(rng):
    """Random windows that fit an image, with values that repeat."""
    size, kernel = rng.integers(1, 24, 2), rng.integers(1, 5, 2)
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    x = rng.integers(-3, 4, (*rng.integers(1, 4, 2), *size)).astype(np.float32)
    kernel, stride = tuple(int(k) for k in kernel), tuple(int(s) for s in rng.integers(1, 4, 2))
    return x, kernel, stride, padding, bool(rng.random() < 0.5)


def test_max_pool():
    rng, kernel_of = np.random.default_rng(8), {row.op: row.ready for row in OURS}
    done = 0
    for turn in range(300):
        x, kernel, stride, padding, ceil_mode = pooled(rng)
        dilation = (1, 1) if turn % 3 or any(padding) or ceil_mode else (2, 1)
        if turn % 4 == 1:
            x[rng.random(x.shape) < 0.2] = np.nan
        if turn % 4 == 2:
            x[rng.random(x.shape) < 0.7] = -np.inf
        windows = (kernel, stride, padding, dilation)
        try:
            values, places = pool_arrays.max_pool(np, x, *windows, ceil_mode)
        except RuntimeError:
            continue  # does not fit
        found, taps = kernel_of["max_pool"](x, *windows, ceil_mode)
        assert taps.dtype == np.uint8
        at = pool_arrays.indices_of(np, taps, x.shape, windows)
        np.testing.assert_array_equal(found, values, err_msg=str((x.shape, windows)))
        np.testing.assert_array_equal(at, places, err_msg=str((x.shape, windows)))
        alone = kernel_of["max_pool_values"](x, *windows, ceil_mode)
        np.testing.assert_array_equal(alone, values, err_msg=str((x.shape, windows)))
        g = normal(*values.shape, seed=rng)
        wanted = pool_arrays.max_pool_grad(np, g, places, x.shape, windows)
        for given in (places, taps):
            assert_near(kernel_of["max_pool_grad"](g, given, x.shape, windows), wanted, str(windows))
        np.testing.assert_array_equal(pool_arrays.max_pool_grad(np, g, taps, x.shape, windows), wanted)
        done += 1
    assert done > 200


def test_max_pool_whose_taps_have_no_numbers():
    """With more taps than uint8 counts, NumPy finds indices."""
    x = normal(2, 3, 40, 40, seed=3)
    windows = (17, 16), (3, 4), (5, 0), (1, 1)
    kernel, alone = (next(row.ready for row in OURS if row.op == op) for op in ("max_pool", "max_pool_values"))
    assert kernel(x, *windows, False) is NotImplemented
    np.testing.assert_array_equal(alone(x, *windows, False), pool_arrays.max_pool(np, x, *windows, False)[0])
    y = tg.tensor(x, requires_grad=True)
    out = F.max_pool2d(y, *windows)
    out.backward(out.detach())
    indices = pool_arrays.max_pool(np, x, *windows, False)[1]
    expected = pool_arrays.max_pool_grad(np, out.detach().numpy(), indices, x.shape, windows)
    assert_near(y.grad.numpy(), expected, "")


@pytest.mark.parametrize("windows", [(2,), (3, 2, 1)])
def test_max_pool_under_transforms(windows):
    """Second derivatives, tangents, batches and indices from numbers of taps are those from NumPy's indices."""
    x, t = (tg.tensor(normal(3, 2, 4, 20, 22, seed=seed)) for seed in (4, 5))

    def cubes(image):
        return (F.max_pool2d(image, *windows) ** 3).sum()

    def run():
        point = x[0].detach().requires_grad_()
        (slope,) = tg.autograd.grad(cubes(point), point, create_graph=True)
        (second,) = tg.autograd.grad(slope.sum(), point)
        values, tangents = tg.func.jvp(lambda image: F.max_pool2d(image, *windows), (x[0],), (t[0],))
        each, twice = tg.func.vmap(tg.func.grad(cubes))(x), tg.func.jvp(tg.func.grad(cubes), (x[0],), (t[0],))
        indices = F.max_pool2d(x[0], *windows, return_indices=True)[1]
        assert indices.dtype is tg.int64
        return [slope.detach(), second, values, tangents, each, *twice, indices]

    fast = run()
    tg.use_deterministic_algorithms(True)
    try:
        slow = run()
    finally:
        tg.use_deterministic_algorithms(False)
    for a, b in zip(fast, slow, strict=True):
        assert_near(a.numpy(), b.numpy(), str(windows))


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (8, 30), (14, 14), (7, 64), (40, 33), (5, 70)])
def test_max_pool_of_four(size):
    """Windows of 2x2 points: rows shorter and longer than vectors, edges left over, nan, equal values, threads."""
    rng, windows = np.random.default_rng(17), ((2, 2), (2, 2), (0, 0), (1, 1))
    ops = ("max_pool", "max_pool_values", "max_pool_grad")
    kernel, alone, backward = (next(row.ready for row in OURS if row.op == op) for op in ops)
    x = rng.integers(-2, 3, (5, 7, *size)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.2] = -np.inf
    expected = pool_arrays.max_pool(np, x, *windows, False)
    before = tg.get_num_threads()
    try:
        for threads in (1, 3):
            tg.set_num_threads(threads)
            values, places = kernel(x, *windows, False)
            np.testing.assert_array_equal(values, expected[0])
            np.testing.assert_array_equal(pool_arrays.indices_of(np, places, x.shape, windows), expected[1])
            np.testing.assert_array_equal(alone(x, *windows, False), expected[0])
            g = np.where(np.isfinite(values), values, 3).astype(np.float32)
            np.testing.assert_array_equal(
                backward(g, places, x.shape, windows),
                pool_arrays.max_pool_grad(np, g, expected[1], x.shape, windows),
            )
    finally:
        tg.set_num_threads(before)


def test_avg_pool():
    rng, kernel_of = np.random.default_rng(9), {row.op: row.ready for row in OURS}
    done = 0
    for turn in range(300):
        x, *rest = pooled(rng)
        rest += [turn % 2 == 0, int(rng.integers(1, 9)) if turn % 5 == 0 else None]
        try:
            expected = pool_arrays.avg_pool(np, x, *rest)
        except RuntimeError:
            continue
        assert_near(kernel_of["avg_pool"](x, *rest), expected, str((x.shape, rest)))
        g = normal(*expected.shape, seed=rng)
        found = kernel_of["avg_pool_grad"](g, x.shape, *rest)
        if found is not NotImplemented:
            assert_near(found, pool_arrays.avg_pool_grad(np, g, x.shape, *rest), str((x.shape, rest)))
            done += 1
    assert done > 150


@pytest.mark.parametrize("size", [1, 2, (4, 2), (3, 5), (8, 8), (16, 16)])
def test_adaptive_avg_pool(size):
    rng = np.random.default_rng(10)
    x = tg.from_numpy(normal(2, 3, 8, 8, seed=rng)).requires_grad_()
    out = F.adaptive_avg_pool2d(x, size)
    g = normal(*out.shape, seed=rng)
    out.backward(tg.from_numpy(g))
    wanted = (size, size) if isinstance(size, int) else size
    assert_near(out.detach().numpy(), pool_arrays.adaptive_avg_pool(np, x.detach().numpy(), wanted), str(size))
    assert_near(x.grad.numpy(), pool_arrays.adaptive_avg_pool_grad(np, g, x.shape), str(size))


def test_poolings_that_are_declined():
    x = tg.randn(2, 3, 8, 8)
    kernel = pool.KERNELS["max_pool"]()
    assert kernel(x.double().numpy(), (2, 2), (2, 2), (0, 0), (1, 1), False) is NotImplemented
    assert kernel(x.numpy()[..., ::2], (2, 2), (2, 2), (0, 0), (1, 1), False) is NotImplemented
    assert kernel(x[0].numpy(), (2,), (2,), (0,), (1,), False) is NotImplemented
    assert kernel(x.numpy(), (2, 2), (2, 2), (1, 1), (2, 2), False) is NotImplemented
    assert F.max_pool1d(x[0], 2).shape == (3, 8, 4)
    assert F.max_pool3d(x, 2).shape == (2, 1, 4, 4)
    assert F.max_pool2d(tg.zeros(0, 3, 8, 8), 2).shape == (0, 3, 4, 4)


def test_results_do_not_depend_on_the_threads():
    rng = np.random.default_rng(11)
    x, w = (
        tg.from_numpy(normal(4, 16, 40, 40, seed=rng)).requires_grad_(),
        tg.from_numpy(normal(24, 16, 3, 3, seed=rng)),
    )
    w.requires_grad_()
    before, results = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            tg.set_num_threads(threads)
            out = F.max_pool2d(F.avg_pool2d(F.conv2d(x, w, padding=1), 2), 2)
            many = F.conv2d(x.reshape(64, 16, 10, 10), w, padding=1)  # images innermost
            results.append([out.detach(), *tg.autograd.grad(out.sum() + many.sum(), [x, w])])
    finally:
        tg.set_num_threads(before)
    for other in results[1:]:
        assert all(bool((a == b).all()) for a, b in zip(results[0], other, strict=True))


def test_small_deep_images_are_declined():
    rng = np.random.default_rng(12)
    x, w = normal(1, 256, 3, 3, seed=rng), normal(256, 256, 3, 3, seed=rng)
    assert conv_loops.conv(x, w, None, (1, 1), (1, 1), (1, 1), 1) is NotImplemented
    assert conv_loops.conv_grad_input(x, w, x.shape, (1, 1), (1, 1), (1, 1), 1) is NotImplemented
    found = F.conv2d(tg.from_numpy(x), tg.from_numpy(w), padding=1)
    assert_near(found.numpy(), conv_arrays.conv(np, x, w, None, (1, 1), (1, 1), (1, 1), 1), "deep")


@pytest.mark.parametrize(
    ("shape", "way"),
    [  # (images, input and output channels, height and width); measured, the others take 1.5 to 4.1 times as long
        *[((1, *channels, 7), "tiles") for channels in ((32, 64), (128, 128), (256, 128), (512, 512))],
        *[((1, *channels, 14), "tiles") for channels in ((3, 64), (128, 128), (512, 512))],
        ((1, 1, 32, 28), "tiles"), ((4, 3, 64, 28), "tiles"), ((32, 1, 16, 14), "tiles"), ((32, 3, 64, 56), "tiles"),
        ((1, 64, 64, 56), "Winograd"), ((4, 64, 64, 28), "Winograd"), ((32, 128, 128, 14), "Winograd"),
        ((32, 128, 128, 7), "Winograd"), ((4, 32, 64, 112), "Winograd"),
    ],
)  # fmt: skip
def test_the_way_that_is_by_far_the_fastest_is_taken(shape, way):
    batch, ins, outs, size = shape
    plan = conv_loops._plan(False, batch, (size, size), None, (3, 3), (1, 1), (1, 1), (1, 1), 1, ins, outs)
    assert way == ("Winograd" if plan.padding else "images innermost" if plan.innermost else "tiles")
