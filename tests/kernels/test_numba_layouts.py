"""Compiled kernels on arrays that do not lie in rows: the numbers of a copy in rows, and PyTorch's strides."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.compiled.table import wanted

pytorch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")
pytestmark = pytest.mark.skipif(not wanted(), reason="the compiled kernels are not in use")

LAYOUTS = {
    "transposed": lambda lib, x: x.transpose(-1, -2),
    "sliced": lambda lib, x: x[..., 8:-8],
    "every other": lambda lib, x: x[..., ::2],
    "expanded": lambda lib, x: x[:1].expand(x.shape),
    "expanded rows": lambda lib, x: x[..., :1].expand(x.shape),
    "sliced and transposed": lambda lib, x: x[..., 4:].transpose(-1, -2),
    "channels_last": lambda lib, x: x.contiguous(memory_format=lib.channels_last) if x.ndim == 4 else x.flip(0),
    "turned": lambda lib, x: x.movedim(0, -1),
}
ELEMENTWISE = {
    "exp": lambda lib, x: x.exp(),
    "relu": lambda lib, x: x.relu(),
    "sigmoid": lambda lib, x: x.sigmoid(),
    "gelu": lambda lib, x: lib.nn.functional.gelu(x),
    "silu": lambda lib, x: lib.nn.functional.silu(x),
    "tanh": lambda lib, x: x.tanh(),
    "add": lambda lib, x: x + 3 * x,
    "add rows": lambda lib, x: x + lib.ones(x.shape),
    "mul by rows": lambda lib, x: lib.full(x.shape, 2.0) * x,
    "a factor for each row": lambda lib, x: x * lib.arange(1.0, x.shape[-2] + 1)[:, None],
    "a number for each column": lambda lib, x: x - lib.arange(1.0, x.shape[-1] + 1),
    "beside its transpose": lambda lib, x: (
        x / (x.transpose(-1, -2)[..., : x.shape[-2], : x.shape[-1]].exp() + 1) if x.shape[-1] == x.shape[-2] else x / 3
    ),
}
BY_ROWS = {
    "softmax": lambda lib, x: x.softmax(-1),
    "log_softmax": lambda lib, x: x.log_softmax(-1),
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda lib, x: lib.nn.functional.rms_norm(x, x.shape[-1:]),
    "cumsum": lambda lib, x: x.cumsum(-1),
    "cumsum of columns": lambda lib, x: x.cumsum(-2),
    "sum": lambda lib, x: x.sum(),
    "mean": lambda lib, x: x.mean(),
    "amax": lambda lib, x: x.amax(),
    "norm": lambda lib, x: x.norm(),
    "contiguous": lambda lib, x: x.contiguous() * 1,
    "flatten": lambda lib, x: x.flatten() * 1,
}
ON_IMAGES = {
    "batch_norm": lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda lib, x: lib.nn.functional.group_norm(x, 2),
    "max_pool2d": lambda lib, x: lib.nn.functional.max_pool2d(x, 2),
    "avg_pool2d": lambda lib, x: lib.nn.functional.avg_pool2d(x, 3, 2, 1),
    "avg_pool2d of channels": lambda lib, x: lib.nn.functional.avg_pool2d(
        lib.cat([x, 2 * x], 1), 2, count_include_pad=False
    ),
    "max_pool2d of channels": lambda lib, x: lib.nn.functional.max_pool2d(lib.cat([x, 2 * x], 1), 2),
    "max_pool2d of channels, beyond the edge": lambda lib, x: lib.nn.functional.max_pool2d(
        lib.cat([x, 2 * x], 1), 3, 2, 1, ceil_mode=True
    ),
    "interpolate of channels": lambda lib, x: lib.nn.functional.interpolate(lib.cat([x, 2 * x, x], 1), size=(30, 51)),
    "interpolate": lambda lib, x: lib.nn.functional.interpolate(x, scale_factor=2),
    "interpolate, bilinear": lambda lib, x: lib.nn.functional.interpolate(x, size=(9, 50), mode="bilinear"),
    "adaptive_avg_pool2d": lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 3),
    "conv2d": lambda lib, x: lib.nn.functional.conv2d(x, lib.ones(4, x.shape[1], 3, 3), padding=1),
}
CASES = [((96, 96), rows) for rows in (ELEMENTWISE, BY_ROWS)]
CASES += [((3, 40, 64), rows) for rows in (ELEMENTWISE, BY_ROWS)]
CASES += [((4, 6, 24, 32), rows) for rows in (ELEMENTWISE, BY_ROWS, ON_IMAGES)]


def _values(shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape, function", [pytest.param(s, f, id=f"{name} {len(s)}d") for s, rows in CASES for name, f in rows.items()]
)
def test_a_layout_changes_no_number(shape, function, layout):
    """Results and gradients, of a loss whose gradient is one number and of one that has a gradient of its own."""

    def run(lib, weighted, rows):
        leaf = lib.tensor(_values(shape), requires_grad=True)
        x = LAYOUTS[layout](lib, leaf)
        x = x.contiguous() if rows else x
        y = function(lib, x)
        ((y * y.detach()).sum() if weighted else y.sum()).backward()
        return y, leaf.grad

    for weighted in (False, True):
        expected = run(torch, weighted, True)
        results = run(torch, weighted, False)
        for got, want in zip(results, expected, strict=True):
            scale = max(1.0, float(want.detach().abs().max()))
            np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "expanded" not in name])
@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in ("add rows", "beside its transpose")])
def test_results_lie_as_pytorchs(name, layout):
    """For two arrays that lie differently NumPy, which serves small ones, has an order of its own."""
    for shape in ((96, 96), (4, 6, 24, 32)):
        found = []
        for lib in (torch, pytorch):
            x = LAYOUTS[layout](lib, lib.tensor(_values(shape)))
            found.append(ELEMENTWISE[name](lib, x))
        assert found[0].stride() == tuple(found[1].stride()), (shape, found[0].shape)


def test_copies_in_rows():
    """Arrays of random shapes, orders and gaps."""
    from tensorgrad.kernels.compiled import layout

    random = np.random.default_rng(3)
    torch.ones(100, 90).t().contiguous()
    kernel, served = layout.kernel_tables.COMPILED["clone_copy"].ready, 0
    for _ in range(600):
        shape = tuple(int(n) for n in random.integers(1, 40, random.integers(2, 5)))
        x = _values(shape).transpose(random.permutation(len(shape)))
        if random.random() < 0.3:
            x = x[tuple(slice(int(random.integers(0, 2)), None) for _ in shape)]
        copied = kernel(x, "contiguous")
        if copied is not NotImplemented:
            served += 1
            assert copied.flags.c_contiguous
            np.testing.assert_array_equal(copied, x)
    assert served > 100


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gradient", ["channels_last", "rows", "one number"])
def test_convolutions_of_points(gradient, bias):
    """Windows of one point over images in channels_last are products of rows."""

    def run(last):
        x, w = _values((8, 32, 20, 20)), _values((48, 32, 1, 1))
        x, w = torch.tensor(x), torch.tensor(w, requires_grad=True)
        shift = torch.tensor(_values(48), requires_grad=True) if bias else None
        x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
        y = torch.nn.functional.conv2d(x, w, shift)
        g = torch.tensor(_values((8, 48, 20, 20)))
        if gradient == "one number":
            g = torch.ones(()).expand(y.shape)
        elif gradient == "channels_last":
            g = g.contiguous(memory_format=torch.channels_last)
        y.backward(g)
        assert not last or y.is_contiguous(memory_format=torch.channels_last)
        return [y.detach(), x.grad, w.grad, *([shift.grad] if bias else [])]

    for found, expected in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)


NORMS = {
    "batch_norm": lambda lib, x, w, b: lib.nn.functional.batch_norm(x, None, None, w, b, True),
    "batch_norm, running": lambda lib, x, w, b: lib.nn.functional.batch_norm(x, w.detach(), b.detach() ** 2 + 1, w, b),
    "group_norm": lambda lib, x, w, b: lib.nn.functional.group_norm(x, x.shape[1] // 4, w, b),
    "group_norm of all": lambda lib, x, w, b: lib.nn.functional.group_norm(x, 1, w, b),
}


@pytest.mark.parametrize("gradient", ["channels_last", "rows", "one number"])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shape", [(3, 64, 7, 5), (4, 12, 8, 16), (2, 8, 3, 4, 6), (1, 520, 3, 3), (2, 4, 15, 17)])
def test_norms_of_points(shape, name, gradient):
    """Images whose channels lie together: results, their strides, and gradients as PyTorch's in double precision."""

    def run(lib):
        layout = lib.channels_last if len(shape) == 4 else lib.channels_last_3d
        dtype = lib.float64 if lib is pytorch else lib.float32
        x, w, b = (lib.tensor(_values(s), dtype=dtype) for s in (shape, shape[1], shape[1]))
        x[:, :2] += 20  # far from zero beside their deviation
        x = x.contiguous(memory_format=layout)
        for leaf in (x, w, b):
            leaf.requires_grad_()
        y = NORMS[name](lib, x, w, b)
        g = lib.tensor(_values(shape)[::-1].copy(), dtype=dtype)
        if gradient == "channels_last":
            g = g.contiguous(memory_format=layout)
        y.backward(lib.ones((), dtype=dtype).expand(shape) if gradient == "one number" else g)
        return y, x.grad, w.grad, b.grad

    results, expected = run(torch), run(pytorch)
    for got, want in zip(results, expected, strict=True):
        assert got.stride() == want.stride()
        scale = max(1.0, float(want.detach().abs().max()))
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=2e-3, atol=1e-3 * scale)


def test_norms_of_points_far_from_zero():
    """Channels of one number, of huge and of tiny numbers, and of nan, each among others."""
    values = np.random.default_rng(1).standard_normal((3, 32, 9, 8)).astype(np.float32)
    values[:, 0], values[:, 1], values[0, 2, 3, 3] = 7.0, values[:, 1] * 3e18, np.nan
    values[:, 3] *= 1e-20
    values[:, 4] = values[:, 4] * 1e-3 + 1000
    x = torch.tensor(values).contiguous(memory_format=torch.channels_last)
    torch.nn.functional.batch_norm(x, None, None, training=True)
    y, mean, rstd = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    exact = values.astype(np.float64).transpose(1, 0, 2, 3).reshape(32, -1)
    np.testing.assert_allclose(mean.numpy(), exact.mean(1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(rstd.numpy(), 1 / np.sqrt(exact.var(1) + 1e-5), rtol=1e-4)
    wanted = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    found = y.numpy().transpose(1, 0, 2, 3).reshape(32, -1)
    np.testing.assert_allclose(np.delete(found, 2, 0), np.delete(wanted, 2, 0), rtol=1e-3, atol=0.05)
    assert np.isnan(found[2]).all()


@pytest.mark.parametrize("padding, dilation", [(0, 1), (1, 1), (0, 2)])
def test_maxima_of_points(padding, dilation):
    """Values, strides, indices and gradients, with ties, nan and windows of -inf only."""

    def run(lib):
        values = np.round(_values((3, 16, 13, 17)))
        values[0, :, :4, :5], values[1, 3, 5, 6], values[1, 3, 6, 6] = -np.inf, np.nan, np.nan
        x = lib.tensor(values).contiguous(memory_format=lib.channels_last).requires_grad_()
        options = {"padding": padding, "dilation": dilation, "return_indices": True}
        y, indices = lib.nn.functional.max_pool2d(x, 3, 2, **options)
        y.backward(lib.tensor(_values(tuple(y.shape))).contiguous(memory_format=lib.channels_last))
        return y, indices, x.grad, lib.nn.functional.max_pool2d(x.detach(), 3, 2, padding, dilation)

    for got, want in zip(run(torch), run(pytorch), strict=True):
        assert got.stride() == want.stride()
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(4099,), (70, 61), (5, 1000), (17, 5, 64)])
def test_where_an_array_begins_changes_no_sum(shape):
    """Vectors begin at cache lines, which are elsewhere in each of these copies."""
    memory, size = np.empty(6000, np.float32), int(np.prod(shape))
    found = []
    for first in range(17):
        x = torch.from_numpy(memory[first : first + size].reshape(shape))
        x.copy_(torch.tensor(_values(shape)))
        given = [(x.sum(d), x.norm(dim=d), x.mean(d)) for d in (*range(x.ndim), None)]
        found.append([v.numpy() for some in given for v in some])
    for some in found[1:]:
        for got, want in zip(some, found[0], strict=True):
            np.testing.assert_array_equal(got, want)
