"""Resizing, sampling at grids, fractional pooling and their layers: what PyTorch's database does not reach."""

import random
import warnings

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.dispatch.twins import twin_kernel
from tensorgrad.kernels.array import grid as grid_kernels
from tensorgrad.kernels.array import interpolate as kernels
from tensorgrad.rows.kernel_tables import OPS
from tests.support.compare import assert_close
from tests.support.threads import threads

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
from tests.conformance.opdb_bridge import to_tg  # noqa: E402

F, G = torch.nn.functional, tg.nn.functional


def leaf(t, requires_grad=False):
    """Returns a copy of a torch tensor as a leaf of tensorgrad."""
    return to_tg(t.detach()).requires_grad_(requires_grad)


@pytest.fixture(autouse=True)
def one_thread():
    with threads(torch, 1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- resizing ------------------------------------------------------------------------------------------------------

MODES = {
    3: ["nearest", "nearest-exact", "linear", "area"],
    4: ["nearest", "nearest-exact", "bilinear", "bicubic", "area", "bilinear aa", "bicubic aa", "lanczos aa"],
    5: ["nearest", "nearest-exact", "trilinear", "area"],
}
FACTORS = (0.5, 2, 1.2, 1.5, 0.77, 1 / 3, 3.3)


def options(rng, mode, dims):
    name, _, aa = mode.partition(" ")
    kw = {"mode": name, "antialias": bool(aa)}
    if name not in ("nearest", "nearest-exact", "area"):
        kw["align_corners"] = name != "lanczos" and rng.random() < 0.4
    if rng.random() < 0.5:
        kw["scale_factor"] = tuple(rng.choice(FACTORS) for _ in range(dims))
        kw["recompute_scale_factor"] = rng.random() < 0.3
    else:
        kw["size"] = tuple(rng.choice((2, 3, 4, 7, 13, 30)) for _ in range(dims))
    return kw


@pytest.mark.parametrize("ndim,mode", [(n, m) for n, modes in MODES.items() for m in modes])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_interpolate_and_its_gradient(ndim, mode, dtype):
    rng = random.Random(f"{ndim}{mode}")
    torch.manual_seed(0)
    for _ in range(12):
        kw = options(rng, mode, ndim - 2)
        x = torch.randn(rng.choice((1, 2)), 3, *[rng.choice((4, 5, 8, 13)) for _ in range(ndim - 2)], dtype=dtype)
        x.requires_grad_()
        y = F.interpolate(x, **kw)
        if "aa" in mode and y.shape[-1] == 1:  # see test_one_wide_pictures
            continue
        mine = leaf(x, True)
        z = G.interpolate(mine, **kw)
        assert z.dtype is leaf(y).dtype and z.is_contiguous()
        tolerance = 1e-5 if dtype is torch.float32 else 1e-10
        assert_close(z, y, tolerance)
        if "aa" in mode and any(n == m for n, m in zip(x.shape[2:], y.shape[2:])):
            continue  # torch's result then forgets the factor and its gradient does not
        w = torch.randn_like(y)
        (g,) = torch.autograd.grad(y, x, w)
        (h,) = tg.autograd.grad(z, mine, leaf(w))
        assert_close(h, g, tolerance)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "bilinear aa", "bicubic aa"])
def test_uint8_images_are_equal(mode):
    rng = random.Random(mode)
    for channels in (1, 3, 6):
        for _ in range(6):
            kw = options(rng, mode, 2)
            x = torch.randint(0, 256, (2, channels, rng.choice((5, 8, 31)), rng.choice((5, 8, 31))), dtype=torch.uint8)
            if int(x.shape[-1] * kw["scale_factor"][1] if "scale_factor" in kw else kw["size"][1]) == 1:
                continue  # see test_one_wide_pictures
            y, z = F.interpolate(x, **kw), G.interpolate(leaf(x), **kw)
            assert z.dtype is tg.uint8
            assert (z.numpy() == y.numpy()).all(), (mode, kw, x.shape)


def test_nearest_forgets_the_factor_in_small_pictures_only():
    for size in ((5, 5), (60, 60)):
        x = torch.rand(1, 1, *size)
        y, z = (f.interpolate(t, scale_factor=2.19) for f, t in ((F, x), (G, leaf(x))))
        assert (z.numpy() == y.numpy()).all()


def test_large_sizes_round_their_places_like_torch():
    x = torch.rand(1, 1, 3, 1000)
    for mode in ("bilinear", "bicubic"):
        for align in (False, True):
            kw = {"size": (3, 1733), "mode": mode, "align_corners": align}
            assert_close(G.interpolate(leaf(x), **kw), F.interpolate(x, **kw), 2e-6)


def test_one_wide_pictures():
    """torch 2.13 mixes rows up here; each column is resized like any other."""
    x = tg.randn(1, 2, 7, 1)
    for mode in ("bilinear", "bicubic", "lanczos"):
        y = G.interpolate(x, size=(3, 1), mode=mode, antialias=True)
        wide = G.interpolate(x.mT, size=(1, 3), mode=mode, antialias=True)
        assert_close(y, torch.from_numpy(wide.mT.numpy().copy()))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_infinities_stay_where_they_are(mode):
    x = torch.rand(1, 1, 40, 40)
    x[0, 0, 3, 4], x[0, 0, 20, 30] = float("inf"), float("nan")
    kw = {"size": (57, 57), "mode": mode}
    y, z = F.interpolate(x, **kw), G.interpolate(leaf(x), **kw)
    assert (y.isfinite().numpy() == z.isfinite().numpy()).all()
    np.testing.assert_allclose(z.numpy(), y.numpy(), 1e-5, 1e-5)


def test_interpolate_is_linear_so_the_second_gradient_is_that_of_the_gradient():
    x, v = (torch.randn(1, 2, 5, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    results = []
    for lib, a, b in ((torch, x, v), (tg, leaf(x, True), leaf(v, True))):
        y = lib.nn.functional.interpolate(a, scale_factor=(1.7, 0.6), mode="bicubic")
        (g,) = lib.autograd.grad((y**2).sum(), a, create_graph=True)
        results.append(lib.autograd.grad((g * b).sum(), a)[0])
    assert_close(results[1], results[0], 1e-10)


@pytest.mark.parametrize("mode", ["linear", "cubic", "linear-aa", "lanczos-aa", "nearest"])
@pytest.mark.parametrize("sizes", [(5, 12), (40, 7), (1, 9), (70, 150)])
def test_the_gradient_kernel_is_the_transpose(mode, sizes):
    n, m = sizes
    x, g = np.random.rand(2, 3, n, 4), np.random.rand(2, 3, m, 4)
    y = kernels.interpolate(np, x, mode, (m, 4), False, None)
    back = kernels.interpolate_grad(np, g, x.shape, mode, False, None)
    assert np.isclose((y * g).sum(), (x * back).sum())


def test_upsample_warns_and_interpolates():
    x = tg.arange(4.0).reshape(1, 1, 2, 2)
    for name, mode in (("upsample", {}), ("upsample_nearest", {}), ("upsample_bilinear", {"mode": "bilinear"})):
        with pytest.warns(UserWarning, match=f"`nn.functional.{name}` is deprecated"):
            y = getattr(G, name)(x, scale_factor=2)
        z = G.interpolate(x, scale_factor=2, **mode, **({"align_corners": True} if mode else {}))
        assert (y == z).all()


def test_interpolate_on_meta():
    x = tg.empty(2, 3, 4, 5, device="meta")
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        y = G.interpolate(x, scale_factor=(2, 1.5), mode=mode)
        assert y.is_meta and y.shape == (2, 3, 8, 7)


ERRORS = [
    ((1, 2, 4, 5), {}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "scale_factor": 2}, ValueError),
    ((1, 2, 4, 5), {"size": (2, 2, 2)}, ValueError),
    ((1, 2, 4, 5), {"scale_factor": (2.0,)}, ValueError),
    ((1, 2, 4, 5), {"size": (2.5, 2)}, TypeError),
    ((1, 2, 4, 5), {"size": 2, "align_corners": False}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "antialias": True}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "mode": "lanczos"}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "mode": "lanczos", "antialias": True, "align_corners": True}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "recompute_scale_factor": True}, ValueError),
    ((1, 2, 4, 5), {"size": 2, "mode": "linear"}, NotImplementedError),
    ((1, 2, 4), {"size": 2, "mode": "trilinear"}, NotImplementedError),
    ((2, 4), {"size": 2}, NotImplementedError),
    ((1, 2, 4, 5), {"size": 2, "mode": "cubical"}, NotImplementedError),
    ((1, 2, 4, 5), {"size": 0, "mode": "bilinear"}, RuntimeError),
    ((1, 2, 4), {"scale_factor": 0.1, "mode": "linear"}, RuntimeError),
    ((1, 0, 4, 5), {"size": 2}, RuntimeError),
]


@pytest.mark.parametrize("shape,kw,error", ERRORS)
def test_interpolate_errors_are_torchs_word_for_word(shape, kw, error):
    with pytest.raises(error) as expected:
        F.interpolate(torch.rand(shape), **kw)
    with pytest.raises(error) as actual:
        G.interpolate(tg.rand(shape), **kw)
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolate_refuses_integers_in_torchs_words(mode):
    for size in (4, 200):
        with pytest.raises(NotImplementedError) as expected:
            F.interpolate(torch.ones(1, 1, 2, 2, dtype=torch.int64), size=size, mode=mode)
        with pytest.raises(NotImplementedError) as actual:
            G.interpolate(tg.ones(1, 1, 2, 2, dtype=tg.int64), size=size, mode=mode)
        assert str(actual.value) == str(expected.value)


# --- grids ---------------------------------------------------------------------------------------------------------

GRIDS = [
    (dims, mode, padding)
    for dims in (2, 3)
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    if dims == 2 or mode != "bicubic"
]


def sampled(dims, seed, dtype=torch.float64, size=None, places=None):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    size = size or [rng.choice((1, 2, 3, 5, 8)) for _ in range(dims)]
    places = places or [rng.choice((1, 3, 4)) for _ in range(dims)]
    x = torch.randn(2, 3, *size, dtype=dtype, requires_grad=True)
    grid = (torch.rand(2, *places, dims, dtype=dtype) * 2 - 1) * rng.choice((1, 1.3, 4))
    return x, grid.requires_grad_()


@pytest.mark.parametrize("dims,mode,padding", GRIDS)
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample_and_its_gradients(dims, mode, padding, align):
    for seed in range(6):
        x, grid = sampled(dims, seed)
        y = F.grid_sample(x, grid, mode, padding, align)
        a, b = leaf(x, True), leaf(grid, True)
        z = G.grid_sample(a, b, mode, padding, align)
        assert_close(z, y, 1e-10)
        w = torch.randn_like(y)
        for got, wanted in zip(tg.autograd.grad(z, (a, b), leaf(w)), torch.autograd.grad(y, (x, grid), w)):
            assert_close(got, wanted, 1e-9)


@pytest.mark.parametrize("dims,mode,padding", GRIDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_grid_sample_rounds_half_precision_as_torch_does(dims, mode, padding, dtype):
    """Every step, and every sum in its order: the same bits, at sizes of several vectors and blocks, too."""
    orders = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")  # vectors of 32 bytes
    for seed in range(12):
        align = bool(seed % 2)
        x, grid = sampled(dims, seed, torch.float32, places=[97, 130] if dims == 2 and seed > 9 else None)
        x, grid = x.detach().to(dtype).requires_grad_(), grid.detach().to(dtype).requires_grad_()
        w = torch.randn(2, 3, *grid.shape[1:-1]).to(dtype)
        y = F.grid_sample(x, grid, mode, padding, align)
        a, b = leaf(x, True), leaf(grid, True)
        z = G.grid_sample(a, b, mode, padding, align)
        found = (z, *tg.autograd.grad(z, (b, a), leaf(w)))
        for got, wanted in list(zip(found, (y, *torch.autograd.grad(y, (grid, x), w))))[: 3 if orders else 2]:
            assert got.tolist() == wanted.tolist(), (seed, align)


@pytest.mark.parametrize("dims,mode,padding", GRIDS)
def test_second_gradients_of_grid_sample(dims, mode, padding):
    x, grid = sampled(dims, 1, size=[3, 4, 5][:dims], places=[2, 3, 2][:dims])
    w = torch.randn(2, 3, *grid.shape[1:-1], dtype=torch.float64, requires_grad=True)
    u, v = torch.randn_like(x), torch.randn_like(grid)
    found = []
    for lib, tensors, (p, q) in (
        (torch, (x, grid, w), (u, v)),
        (tg, tuple(leaf(t, True) for t in (x, grid, w)), (leaf(u), leaf(v))),
    ):
        y = lib.nn.functional.grid_sample(tensors[0], tensors[1], mode, padding, align_corners=False)
        dx, dgrid = lib.autograd.grad(y, tensors[:2], tensors[2], create_graph=True)
        total = (dx * p).sum() + (dgrid * q).sum()
        found.append(lib.autograd.grad(total, tensors, allow_unused=True))
    for wanted, got in zip(*found):
        if wanted is not None and got is not None:
            assert_close(got, wanted, 1e-9)
        else:
            assert all(t is None or not t.any() for t in (wanted, got))


@pytest.mark.parametrize("dims,mode,padding", GRIDS)
def test_the_twin_of_grid_sample_is_its_kernel(dims, mode, padding):
    op = OPS[f"grid_sampler_{dims}d"]
    for seed in range(3):
        x, grid = sampled(dims, seed)
        arrays = x.detach().numpy(), grid.detach().numpy()
        for align in (False, True):
            twin = twin_kernel(op)(*arrays, mode, padding, align)
            kernel = grid_kernels.grid_sample(np, *arrays, mode, padding, align)
            np.testing.assert_allclose(twin, kernel, 1e-10, 1e-10)
            g = np.random.randn(*kernel.shape)
            inputs = [tg.tensor(a, requires_grad=True) for a in arrays]
            y = op.compiled.call(*inputs, mode, padding, align)
            through = tg.autograd.grad(y, inputs, tg.tensor(g), create_graph=True)
            for a, b in zip(through, grid_kernels.grid_sample_grad(np, g, *arrays, mode, padding, align, (True, True))):
                np.testing.assert_allclose(a.detach().numpy(), b, 1e-9, 1e-9)


def test_many_small_and_few_large_images_are_sampled_in_blocks(monkeypatch):
    x, grid = sampled(2, 0, torch.float32, size=[6, 7], places=[30, 40])
    monkeypatch.setattr(grid_kernels, "BLOCK", 300)
    y, z = F.grid_sample(x, grid, align_corners=False), G.grid_sample(leaf(x), leaf(grid), align_corners=False)
    assert_close(z, y, 1e-5)
    x, grid = torch.randn(50, 1, 4, 4, requires_grad=True), (torch.rand(50, 3, 3, 2) * 2 - 1).requires_grad_()
    a, b = leaf(x, True), leaf(grid, True)
    F.grid_sample(x, grid, align_corners=True).sum().backward()
    G.grid_sample(a, b, align_corners=True).sum().backward()
    assert_close(a.grad, x.grad)
    assert_close(b.grad, grid.grad)


def test_places_that_are_not_numbers():
    nan, inf = float("nan"), float("inf")
    x = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    grid = torch.tensor([[nan, 0], [0, nan], [inf, 0], [-inf, 0], [nan, nan], [-1e20, 0.5]]).reshape(1, 1, -1, 2)
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            y = F.grid_sample(x, grid, mode, padding, align_corners=False)
            z = G.grid_sample(leaf(x), leaf(grid), mode, padding, align_corners=False)
            np.testing.assert_allclose(z.numpy(), y.numpy(), 1e-6)


def test_only_what_is_asked_for_is_differentiated():
    x, grid = sampled(2, 2)
    for wanted in (0, 1):
        tensors = [leaf(x), leaf(grid)]
        tensors[wanted].requires_grad_()
        G.grid_sample(*tensors, align_corners=False).sum().backward()
        (expected,) = torch.autograd.grad(F.grid_sample(x, grid, align_corners=False).sum(), (x, grid)[wanted])
        assert_close(tensors[wanted].grad, expected, 1e-9)
        assert tensors[1 - wanted].grad is None


GRID_ERRORS = [
    (lambda t, x, g: t.nn.functional.grid_sample(x, g, mode="cubic", align_corners=False), ValueError),
    (lambda t, x, g: t.nn.functional.grid_sample(x, g, padding_mode="wrap", align_corners=False), ValueError),
    (lambda t, x, g: t.nn.functional.grid_sample(x, g[:1], align_corners=False), RuntimeError),
    (lambda t, x, g: t.nn.functional.grid_sample(x, g[..., :1], align_corners=False), RuntimeError),
    (lambda t, x, g: t.nn.functional.grid_sample(x, g.float(), align_corners=False), RuntimeError),
    (lambda t, x, g: t.nn.functional.grid_sample(x[:, :, :0], g, align_corners=False), RuntimeError),
    (lambda t, x, g: t.nn.functional.grid_sample(x[0], g[0], align_corners=False), RuntimeError),
    (lambda t, x, g: t.nn.functional.grid_sample(x.long(), g.long(), align_corners=False), NotImplementedError),
    (lambda t, x, g: t.grid_sampler_3d(x, g, 0, 0, False), RuntimeError),
    (lambda t, x, g: t.grid_sampler_3d(x[..., None], t.zeros(2, 1, 1, 1, 3).double(), 2, 0, False), RuntimeError),
    (lambda t, x, g: t.affine_grid_generator(g, (2, 3, 4), True), RuntimeError),
    (lambda t, x, g: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 0, 5), align_corners=False), ValueError),
    (lambda t, x, g: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 4), align_corners=False), NotImplementedError),
    (lambda t, x, g: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 4, 5, 6), align_corners=False), ValueError),
    (
        lambda t, x, g: t.nn.functional.affine_grid(t.ones(2, 2, 3).long(), (2, 3, 4, 5), align_corners=False),
        ValueError,
    ),
]


@pytest.mark.parametrize("call,error", GRID_ERRORS)
def test_errors_of_grids_are_torchs_word_for_word(call, error):
    x, grid = sampled(2, 0)
    with pytest.raises(error) as expected:
        call(torch, x.detach(), grid.detach())
    with pytest.raises(error) as actual:
        call(tg, leaf(x), leaf(grid))
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 1), (2, 3, 2, 4, 3)])
@pytest.mark.parametrize("align", [False, True])
def test_affine_grids(size, align):
    dims = len(size) - 2
    theta = torch.randn(2, dims, dims + 1, requires_grad=True)
    mine = leaf(theta, True)
    y, z = F.affine_grid(theta, size, align_corners=align), G.affine_grid(mine, size, align_corners=align)
    assert_close(z, y, 1e-6)
    w = torch.randn_like(y)
    y.backward(w)
    z.backward(leaf(w))
    assert_close(mine.grad, theta.grad)


def test_grids_warn_unless_corners_are_named():
    theta = tg.eye(2, 3).unsqueeze(0)
    with pytest.warns(UserWarning, match="Default grid_sample and affine_grid behavior has changed"):
        grid = G.affine_grid(theta, (1, 1, 3, 3))
    with pytest.warns(UserWarning, match="Default grid_sample and affine_grid behavior has changed"):
        G.grid_sample(tg.ones(1, 1, 3, 3), grid)
    with pytest.warns(UserWarning, match="unit-size grids"):
        G.affine_grid(theta, (1, 1, 1, 3), align_corners=True)


# --- pooling by norms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [float("inf"), float("-inf")])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pooling_by_an_infinite_norm(dims, norm):
    name, x = f"lp_pool{dims}d", torch.randn(2, 3, *[5] * dims, requires_grad=True)
    mine = leaf(x, True)
    for stride, up in ((None, False), (2, True), (1, False)):
        expected, found = (getattr(f, name)(v, norm, 2, stride, up) for f, v in ((F, x), (G, mine)))
        assert_close(found, expected)
        for result in (expected, found):
            result.pow(2).sum().backward()
    assert_close(mine.grad, x.grad)


# --- fractional pooling --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_pooling_draws_torchs_windows(dims, dtype):
    name = f"fractional_max_pool{dims}d"
    for kernel, size, shape in (
        (1, 5, (2, 3, 17, 13, 12)),
        (2, 4, (1, 2, 9, 9, 9)),
        ((2, 3, 1), (3, 1, 2), (3, 8, 9, 7)),
    ):
        kernel, size = (v[:dims] if isinstance(v, tuple) else v for v in (kernel, size))
        x = torch.randn(shape[: len(shape) - 3 + dims]).to(dtype)
        for samples in (None, torch.rand(x.shape[0] if len(shape) == 5 else 1, x.shape[-dims - 1], dims).to(dtype)):
            torch.manual_seed(3)
            tg.manual_seed(3)
            y, i = getattr(F, name)(x, kernel, size, return_indices=True, _random_samples=samples)
            given = None if samples is None else leaf(samples)
            z, j = getattr(G, name)(leaf(x), kernel, size, return_indices=True, _random_samples=given)
            assert (j.numpy() == i.numpy()).all()
            assert (z.to(tg.float64).numpy() == y.double().numpy()).all()


def test_fractional_pooling_has_a_gradient():
    x = torch.randn(2, 3, 9, 9, requires_grad=True)
    samples = torch.rand(2, 3, 2)
    mine = leaf(x, True)
    F.fractional_max_pool2d(x, 3, output_ratio=(0.5, 0.6), _random_samples=samples).pow(2).sum().backward()
    G.fractional_max_pool2d(mine, 3, output_ratio=(0.5, 0.6), _random_samples=leaf(samples)).pow(2).sum().backward()
    assert_close(mine.grad, x.grad)


def test_fractional_pooling_of_nan_and_equals():
    x = torch.full((1, 1, 4, 4), -float("inf"))
    x[0, 0, 1, 1] = x[0, 0, 0, 0] = float("nan")
    x[0, 0, 2, 1] = x[0, 0, 3, 0] = 5
    samples = torch.full((1, 1, 2), 0.5)
    kw = {"output_size": 2, "return_indices": True}
    y, i = F.fractional_max_pool2d(x, 2, _random_samples=samples, **kw)
    z, j = G.fractional_max_pool2d(leaf(x), 2, _random_samples=leaf(samples), **kw)
    np.testing.assert_array_equal(z.numpy(), y.numpy())
    assert (j.numpy() == i.numpy()).all()


FRACTIONAL_ERRORS = [
    (lambda t, x, r: t.fractional_max_pool2d(x, 2), ValueError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5, 0.5)), ValueError),
    (lambda t, x, r: t.fractional_max_pool2d(x, (2, 2, 2), output_size=3), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=(3, 3, 3)), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=8), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x[:, :0], 2, output_size=3), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x[None], 2, output_size=3), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=3, _random_samples=r[:1]), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=3, _random_samples=r[:, :1]), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=3, _random_samples=r[..., :1]), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=3, _random_samples=r[0]), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool2d(x, 2, output_size=3, _random_samples=r.double()), RuntimeError),
    (lambda t, x, r: t.fractional_max_pool3d(x, 2, output_size=(7, 7, 3)), RuntimeError),
]


@pytest.mark.parametrize("call,error", FRACTIONAL_ERRORS)
def test_errors_of_fractional_pooling_are_torchs_word_for_word(call, error):
    x, samples = torch.rand(2, 3, 8, 9), torch.rand(2, 3, 2)
    with pytest.raises(error) as expected:
        call(F, x, samples)
    with pytest.raises(error) as actual:
        call(G, leaf(x), leaf(samples))
    assert str(actual.value) == str(expected.value)


# --- layers --------------------------------------------------------------------------------------------------------

LAYERS = [
    ("FractionalMaxPool2d", {"kernel_size": 2, "output_ratio": 0.5}, (2, 3, 8, 9)),
    ("FractionalMaxPool2d", {"kernel_size": (2, 3), "output_size": (3, 4)}, (3, 8, 9)),
    ("FractionalMaxPool3d", {"kernel_size": 2, "output_size": (3, 2, 4)}, (2, 3, 8, 9, 7)),
    ("FractionalMaxPool3d", {"kernel_size": 2, "output_ratio": 0.5}, (3, 8, 9, 7)),
    ("LPPool1d", {"norm_type": 2, "kernel_size": 3}, (2, 3, 9)),
    ("LPPool2d", {"norm_type": 2, "kernel_size": (3, 2), "stride": 2}, (2, 3, 8, 9)),
    ("LPPool3d", {"norm_type": 4, "kernel_size": 3}, (2, 3, 8, 9, 7)),
    ("Unfold", {"kernel_size": (2, 3), "padding": 1, "stride": 2}, (2, 3, 5, 6)),
    ("Fold", {"output_size": (4, 5), "kernel_size": 2}, (2, 12, 12)),
    ("Upsample", {"scale_factor": 2}, (2, 3, 4, 5)),
    ("Upsample", {"size": (3, 4), "mode": "bilinear", "align_corners": True}, (2, 3, 4, 5)),
    ("Upsample", {"scale_factor": (2, 3)}, (2, 3, 4, 5)),
    ("Upsample", {"scale_factor": 1.7, "mode": "trilinear", "recompute_scale_factor": True}, (2, 3, 4, 5, 3)),
    ("UpsamplingNearest2d", {"scale_factor": 2}, (2, 3, 4, 5)),
    ("UpsamplingBilinear2d", {"size": 2}, (2, 3, 4, 5)),
]


def settings(module):
    return {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}


@pytest.mark.parametrize("name,kw,shape", LAYERS)
def test_layers_are_torchs(name, kw, shape):
    theirs, mine = getattr(torch.nn, name)(**kw), getattr(tg.nn, name)(**kw)
    assert repr(mine) == repr(theirs)
    assert settings(mine) == settings(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    torch.manual_seed(3)
    tg.manual_seed(3)
    x = torch.randn(shape, requires_grad=True)
    a = leaf(x, True)
    torch.manual_seed(4)
    tg.manual_seed(4)
    y, z = theirs(x), mine(a)
    assert_close(z, y)
    w = torch.randn_like(y)
    y.backward(w)
    z.backward(leaf(w))
    assert_close(a.grad, x.grad)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_layers(dims):
    theirs, mine = getattr(torch.nn, f"MaxUnpool{dims}d")(2), getattr(tg.nn, f"MaxUnpool{dims}d")(2)
    assert repr(mine) == repr(theirs) and settings(mine) == settings(theirs)
    for n, size in ((6, None), (7, [2, 3, *[7] * dims])):
        x = torch.randn(2, 3, *[n] * dims)
        y, i = getattr(torch.nn, f"MaxPool{dims}d")(2, return_indices=True)(x)
        assert (mine(leaf(y), leaf(i), size).numpy() == theirs(y, i, size).numpy()).all()


@pytest.mark.parametrize("size,channels", [(1, 3), (3, 2), (3, 9), (4, 9), (5, 9), (12, 2)])
def test_cross_map_normalisation(size, channels):
    kw = {"alpha": 0.3, "beta": 0.6, "k": 2}
    theirs, mine = torch.nn.CrossMapLRN2d(size, **kw), tg.nn.CrossMapLRN2d(size, **kw)
    assert repr(mine) == repr(theirs)
    x = torch.randn(2, channels, 3, 4, dtype=torch.float64)
    assert_close(mine(leaf(x)), theirs(x), 1e-10)
    assert tg.autograd.gradcheck(mine, (leaf(x[:1, :, :1, :2], True),))  # torch's own gradient fails this
    with pytest.raises(ValueError, match="CrossMapLRN2d: Expected input to be 4D, got 3D instead"):
        mine(leaf(x[0]))


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_layers_check_their_sizes(dims):
    name = f"FractionalMaxPool{dims}d"
    for kw in ({}, {"output_size": 2, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        with pytest.raises(ValueError) as expected:
            getattr(torch.nn, name)(2, **kw)
        with pytest.raises(ValueError) as actual:
            getattr(tg.nn, name)(2, **kw)
        assert str(actual.value) == str(expected.value)
