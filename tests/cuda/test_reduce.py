"""Reductions on the GPU against torch: sizes that take one launch or two, rows and columns, all kinds of memory."""

import cupy
import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.cuda import reduce
from tests.cuda.compare import assert_close_on_gpu

torch = pytest.importorskip("torch")

# Shapes and dimensions: short rows, long ones in pieces, columns with packs and without, two groups of dimensions or
# three.
SHAPES = [
    ((7,), None), ((5, 300), 1), ((5, 300), 0), ((5, 300), None), ((3, 4, 5, 6), (1, 3)), ((3, 4, 5, 6), (0, 2)),
    ((2, 3, 2, 3, 2, 3), (0, 2, 4)), ((40001,), None), ((20000, 3), 0), ((20000, 8), 0), ((3, 5000), 1), ((2, 1, 3), 1),
    ((3000, 40), 0), ((2, 5000, 5), 1), ((1, 1), (0, 1)), ((4, 6, 1500), (0, 2)),
]  # fmt: skip
CALLS = {
    "sum": lambda x, dim, keep: x.sum(dim, keep), "mean": lambda x, dim, keep: x.mean(dim, keep),
    "amax": lambda x, dim, keep: x.amax(dim, keep), "amin": lambda x, dim, keep: x.amin(dim, keep),
    "var": lambda x, dim, keep: x.var(dim, correction=0, keepdim=keep),
    "std": lambda x, dim, keep: x.std(dim, correction=0, keepdim=keep),
    "norm": lambda x, dim, keep: x.norm(2, dim, keep),
}  # fmt: skip


def pair(host, dtype="float32"):
    ours, theirs = tensorgrad.from_numpy(host).to("cuda"), torch.from_numpy(host.copy())
    return ours.to(getattr(tensorgrad, dtype)), theirs.to(getattr(torch, dtype))


@pytest.mark.parametrize("name", CALLS)
def test_shapes_and_dimensions(name):
    rng = np.random.default_rng(0)
    for shape, dim in SHAPES:
        dim = tuple(range(len(shape))) if dim is None else dim
        x, y = pair(rng.standard_normal(shape).astype(np.float32))
        for keep in (False, True):
            assert_close_on_gpu(CALLS[name](x, dim, keep), CALLS[name](y, dim, keep), 2e-5)


@pytest.mark.parametrize("dtype, limit", [("float64", 1e-12), ("float16", 2e-3), ("bfloat16", 1e-2)])
def test_dtypes(dtype, limit):
    x, y = pair(np.random.default_rng(1).standard_normal((9, 1001)).astype(np.float32), dtype)
    for name in ("sum", "var" if dtype == "float64" else "amax"):
        call = CALLS[name]
        for dim in (0, 1):
            want = call(y.double(), dim, False).to(y.dtype)
            got = call(x, dim, False)
            assert got.dtype is x.dtype, name
            torch.testing.assert_close(
                torch.tensor(got.cpu().double().tolist(), dtype=torch.float64), want.double(), rtol=limit, atol=limit
            )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradient_of_a_product_of_every_dtype(dtype):
    x, y = pair(np.float32([[1, 2, 0.5], [0, 3, 2]]), dtype)
    x.requires_grad_(), y.requires_grad_()
    for dim in (0, 1):
        x.prod(dim).sum().backward()
        y.prod(dim).sum().backward()
    assert x.grad.cpu().double().tolist() == y.grad.double().tolist()


@pytest.mark.parametrize("view", ["transposed", "sliced", "channels last", "repeated"])
def test_views(view):
    host = np.random.default_rng(2).standard_normal((4, 6, 10)).astype(np.float32)
    x, y = pair(host)
    turn = {
        "transposed": lambda t: t.transpose(0, 2), "sliced": lambda t: t[:, 1::2, 3:],
        "channels last": lambda t: t.permute(0, 2, 1), "repeated": lambda t: t[:, :1].expand(4, 6, 10),
    }[view]  # fmt: skip
    x, y = turn(x), turn(y)
    for dim in (0, 1, 2, (0, 2), (0, 1, 2)):
        for keep in (False, True):
            assert_close_on_gpu(x.sum(dim, keep), y.sum(dim, keep), 2e-5)
    assert_close_on_gpu(x.argmax(), y.argmax(), 2e-5)
    assert_close_on_gpu(x.argmax(1), y.argmax(1), 2e-5)


def test_places_are_those_of_the_first():
    host = np.zeros((6, 5000), np.float32)
    host[1, [70, 3000]], host[2, [9, 4000]], host[3, 4999], host[4] = 1, np.nan, -1, np.inf
    x, y = pair(host)
    for dim in (0, 1, None):
        assert_close_on_gpu(x.argmax(dim), y.argmax(dim), 2e-5)
        assert_close_on_gpu(x.argmin(dim), y.argmin(dim), 2e-5)
    for ours, theirs in ((x.max(1), y.max(1)), (x.min(0), y.min(0))):
        assert_close_on_gpu(ours.values, theirs.values, 2e-5)
        assert_close_on_gpu(ours.indices, theirs.indices, 2e-5)


def test_nan_and_infinity():
    host = np.array([[1, np.nan, 2], [np.inf, 1, 2], [-np.inf, -np.inf, -np.inf], [np.inf, -np.inf, 0]], np.float32)
    x, y = pair(host)
    for call in ("amax", "amin", "sum", "mean", "logsumexp"):
        assert_close_on_gpu(getattr(x, call)(1), getattr(y, call)(1), 2e-5)


@pytest.mark.filterwarnings("ignore:var\\(\\)")
def test_other_reductions():
    x, y = pair(np.random.default_rng(3).standard_normal((30, 70)).astype(np.float32))
    for dim in (0, 1):
        assert_close_on_gpu(x.logsumexp(dim), y.logsumexp(dim), 2e-5)
        for correction in (0, 1, 40):
            assert_close_on_gpu(x.var(dim, correction=correction), y.var(dim, correction=correction), 2e-5)
            for name in ("var_mean", "std_mean"):
                ours = getattr(tensorgrad, name)(x, dim, correction=correction)
                for a, b in zip(ours, getattr(torch, name)(y, dim, correction=correction), strict=True):
                    assert_close_on_gpu(a, b, 2e-5)
    assert_close_on_gpu((x * 0.9).prod(1), (y * 0.9).prod(1), 2e-5)
    assert_close_on_gpu((x > 0).any(1), (y > 0).any(1), 2e-5)
    assert_close_on_gpu((x > -3).all(1), (y > -3).all(1), 2e-5)
    assert_close_on_gpu((x > 0).sum(1), (y > 0).sum(1), 2e-5)
    assert_close_on_gpu((x * 100).to(tensorgrad.int32).sum(1), (y * 100).to(torch.int32).sum(1), 2e-5)
    for order in (0, 1, 2, 3, 0.5, float("inf"), float("-inf")):
        assert_close_on_gpu(tensorgrad.linalg.vector_norm(x, order, 1), torch.linalg.vector_norm(y, order, 1), 2e-5)


def test_means_of_many_large_numbers():
    """A variance is not the difference of two large sums, and a sum of halves is not kept in a half."""
    x, y = pair((np.random.default_rng(4).standard_normal(50_000) + 1e4).astype(np.float32))
    assert_close_on_gpu(x.var(), y.double().var().float(), 1e-3)
    ones = tensorgrad.ones(100_000, dtype=tensorgrad.float16, device="cuda")
    assert ones.mean().item() == 1


def test_sums_repeat_to_the_last_bit():
    x = cupy.asarray(np.random.default_rng(5).standard_normal(100_000).astype(np.float32))
    first = reduce.sum_(x, None, False, None).get().tobytes()
    assert all(reduce.sum_(x, None, False, None).get().tobytes() == first for _ in range(3))


@pytest.mark.parametrize("shape", [(7,), (5, 300), (3, 1024), (3, 2500), (4, 6, 9), (3000, 4)])
def test_running_sums(shape):
    host = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    for dim in range(len(shape)):
        x, y = pair(host)
        assert_close_on_gpu(x.cumsum(dim), y.cumsum(dim), 1e-4)
        x.requires_grad_(), y.requires_grad_()
        (x.cumsum(dim) * x.detach()).sum().backward()
        (y.cumsum(dim) * y.detach()).sum().backward()
        assert_close_on_gpu(x.grad, y.grad, 1e-4)


def test_running_sums_of_other_dtypes_and_infinity():
    x, y = pair(np.array([[1, np.inf, 2, np.nan, 3], [0, 1, -np.inf, np.inf, 1]], np.float32))
    assert_close_on_gpu(x.cumsum(1), y.cumsum(1), 2e-5)
    x, y = pair(np.random.default_rng(8).integers(-50, 50, (3, 2000)).astype(np.float32), "int32")
    assert_close_on_gpu(x.cumsum(1), y.cumsum(1), 2e-5)
    assert_close_on_gpu((x > 0).cumsum(0), (y > 0).cumsum(0), 2e-5)
    ones = tensorgrad.ones(2, 5000, dtype=tensorgrad.bfloat16, device="cuda")
    assert ones.cumsum(1)[1, -1].item() == 4992  # the nearest to 5,000: a sum kept in bfloat16 stays at 256


def test_gradients():
    host = np.random.default_rng(6).standard_normal((4, 50)).astype(np.float32)
    for call in (lambda t: t.sum(1).sum(), lambda t: t.var(0).sum(), lambda t: t.norm(), lambda t: t.logsumexp(1).sum(),
                 lambda t: t.max(1)[0].sum()):  # fmt: skip
        x, y = (t.requires_grad_() for t in pair(host))
        call(x).backward()
        call(y).backward()
        assert_close_on_gpu(x.grad, y.grad, 2e-5)


def test_declines_what_it_was_not_made_for():
    assert reduce.sum_(cupy.zeros((0, 3), np.float32), 0, False, None) is NotImplemented
    assert reduce.sum_(cupy.zeros((), np.float32), None, False, None) is NotImplemented
    assert reduce.amax(cupy.zeros(3, np.int64), None, False) is NotImplemented
    assert reduce.sum_(cupy.zeros(3, np.complex64), None, False, None) is NotImplemented


@pytest.mark.parametrize("shape", [(3,), (5, 3), (3, 5, 40), (2, 3000)], ids=str)
@pytest.mark.parametrize("scale", [1e20, 1.0, 1e-20])
def test_deviations_of_numbers_whose_squares_leave_their_range(shape, scale):
    x = (np.random.default_rng(3).standard_normal(shape) * scale).astype("float32")
    for dim in (None, *range(len(shape))):
        expected = x.astype("float64").std(dim, ddof=1)
        given = tensorgrad.tensor(x, device="cuda").std(dim).cpu().numpy()
        np.testing.assert_allclose(given, expected, rtol=2e-5)
