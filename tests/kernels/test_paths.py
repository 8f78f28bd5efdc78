"""Kernels that go different ways for different sizes: each way against PyTorch, or against the plain definition."""

import numpy as np
import pytest

import tensorgrad
from tensorgrad.kernels.array import conv, depthwise, norm, scan
from tests.support.alike import last_bit
from tests.support.compare import assert_close, normal

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")
F = torch.nn.functional


def both_results(program, *arrays, grads=True):
    """Returns the result of `program(library, *tensors)` and the gradients of its squared sum, under both libraries."""
    found = []
    for library in (tensorgrad, torch):
        tensors = [library.from_numpy(a.copy()) for a in arrays]
        leaves = [t.requires_grad_() for t in tensors if grads and t.is_floating_point()]
        result = program(library, *tensors)
        values = [result.detach().numpy()]
        if leaves:
            (result * result).sum().backward()
            values += [leaf.grad.numpy() for leaf in leaves]
        found.append(values)
    return found


# ---------------------------------------------------------------- running sums


@pytest.mark.parametrize("shape", [(5000,), (70001,), (3, 30001), (300, 17), (40, 100), (7, 300, 5), (2, 40, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_sums_by_products(shape, dtype):
    x = normal(*shape, dtype=dtype)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for dim in range(len(shape)):
        expected = np.cumsum(x.astype(np.float64), dim)
        back = np.flip(np.cumsum(np.flip(x.astype(np.float64), dim), dim), dim)
        np.testing.assert_allclose(scan.cumsum(np, x, dim, None), expected, rtol=tolerance, atol=20 * tolerance)
        np.testing.assert_allclose(scan.cumsum_reversed(np, x, dim), back, rtol=tolerance, atol=20 * tolerance)


def test_running_sums_of_infinities_and_nan():
    """What comes before an infinity stays finite, though it meets it in a product."""
    x = np.ones((3, 2000), np.float32)
    x[0, 700], x[1, 3], x[1, 1900] = np.inf, np.nan, np.inf
    np.testing.assert_array_equal(scan.cumsum(np, x, 1, None), np.cumsum(x, 1))
    np.testing.assert_array_equal(scan.cumsum(np, x.T.copy(), 0, None), np.cumsum(x, 1).T)


# ---------------------------------------------------------------- convolutions of few channels per group


@pytest.mark.parametrize("pieces", [1 << 22, 20_000])
@pytest.mark.parametrize(
    "dims,groups,inner,own,options",
    [
        (2, 6, 1, 1, {"padding": 1}),
        (2, 4, 1, 2, {"padding": (2, 1), "dilation": (2, 1)}),
        (2, 3, 2, 2, {}),
        (1, 5, 1, 1, {"padding": 2, "dilation": 3}),
        (3, 4, 1, 1, {"padding": 1}),
    ],
)
def test_depthwise_convolution(monkeypatch, pieces, dims, groups, inner, own, options):
    monkeypatch.setattr(depthwise, "PIECE_BYTES", pieces)
    size, kernel = (9, 8, 10)[:dims], (3, 2, 3)[:dims]
    x, w, b = normal(5, groups * inner, *size), normal(groups * own, inner, *kernel, seed=1), normal(groups * own)
    assert depthwise.suits(np, x.shape, w.shape, (1,) * dims, groups) == (5 * np.prod(size) >= 64)

    def program(library, x, w, b):
        return getattr(library.nn.functional, f"conv{dims}d")(x, w, b, groups=groups, **options)

    assert_close(*both_results(program, x, w, b), 2e-5, atol=2e-4)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize("extra", [(1, 0), (2, 1)])
def test_transposed_convolution_with_points_that_nothing_reaches(groups, kernel, extra):
    x, w = normal(2, 6, 13, 14), normal(6, 4, *kernel, seed=1)
    options = {"output_padding": extra, "dilation": (3, 2), "groups": groups}
    assert_close(
        *both_results(lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, **options), x, w),
        2e-5,
        atol=2e-3,
    )


def test_depthwise_convolution_is_the_general_one():
    x, w = normal(3, 4, 11, 12, dtype=np.float64), normal(8, 1, 3, 3, dtype=np.float64)
    args = ((1, 1), (2, 1), (1, 2), 4)
    assert not depthwise.suits(np, x.shape, w.shape, (2, 1), 4)
    per_group = [conv.conv(np, x[:, g : g + 1], w[2 * g : 2 * g + 2], None, *args[:3], 1) for g in range(4)]
    np.testing.assert_allclose(conv.conv(np, x, w, None, *args), np.concatenate(per_group, 1), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- bags of rows


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(4, 5), (300, 20), (0, 5), (4, 1)])
def test_bags_of_one_size(mode, shape):
    table, rows = normal(50, 16), np.random.default_rng(1).integers(0, 50, shape)
    assert_close(
        *both_results(lambda t, rows, table: t.nn.functional.embedding_bag(rows, table, mode=mode), rows, table),
        1e-4,
    )


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_with_offsets(mode):
    table, rows = normal(50, 16), np.random.default_rng(1).integers(0, 50, 40)
    offsets = np.array([0, 3, 3, 17, 40])

    def program(t, rows, table, offsets):
        return t.nn.functional.embedding_bag(rows, table, offsets, mode=mode)

    assert_close(*both_results(program, rows, table, offsets), 1e-4)


def test_bags_refuse_rows_that_are_not_there():
    table = tensorgrad.zeros(3, 2)
    for rows in ([[0, 3]], [[-1, 0]]):
        with pytest.raises(RuntimeError, match="not in the valid range"):
            tensorgrad.nn.functional.embedding_bag(tensorgrad.tensor(rows), table)


# ---------------------------------------------------------------- normalisations in blocks


@pytest.mark.parametrize("rows,columns", [(7, 5), (700, 256), (300, 700), (3, 9000)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_in_blocks(monkeypatch, rows, columns, affine):
    monkeypatch.setattr(norm, "BLOCK", 1 << 15)
    w, b = (1 + normal(columns, seed=1) / 4, normal(columns, seed=2)) if affine else (None, None)
    given = [3 + normal(rows, columns)] + ([w, b] if affine else [])
    assert_close(
        *both_results(lambda t, *a: t.nn.functional.layer_norm(a[0], (columns,), *a[1:]), *given),
        1e-4,
        atol=2e-4 * rows**0.5,
    )


@pytest.mark.parametrize("shape", [(6, 5), (50, 4, 3), (9, 40, 20, 20), (4, 6, 70, 70)])
def test_batch_norm_in_blocks(monkeypatch, shape):
    monkeypatch.setattr(norm, "BLOCK", 1 << 14)
    w, b = 1 + normal(shape[1], seed=1) / 4, normal(shape[1], seed=2)
    for training in (True, False):
        mean, var = normal(shape[1], seed=3), 1 + normal(shape[1], seed=4) ** 2

        def program(t, x, w, b, mean=mean, var=var, training=training):
            running = (t.from_numpy(mean.copy()), t.from_numpy(var.copy()))
            return t.nn.functional.batch_norm(x, *running, w, b, training)

        assert_close(*both_results(program, 2 + normal(*shape), w, b), 1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(6, 8), (5, 8, 3), (9, 8, 20, 20), (40, 8, 30, 30)])
def test_group_norm_in_blocks(monkeypatch, shape):
    monkeypatch.setattr(norm, "BLOCK", 1 << 14)
    w, b = 1 + normal(8, seed=1) / 4, normal(8, seed=2)
    assert_close(
        *both_results(lambda t, x, w, b: t.nn.functional.group_norm(x, 4, w, b), 2 + normal(*shape), w, b),
        1e-4,
        atol=2e-3,
    )


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    "shape,dim,size,step",
    [((4, 1600), 1, 400, 160), ((100, 3), 0, 30, 16), ((2, 200, 3), 1, 33, 8), ((2, 40), 1, 40, 16)],
)
def test_gradient_of_windows_with_long_steps(shape, dim, size, step):
    assert_close(
        *both_results(lambda t, x: x.unfold(dim, size, step) * 1, normal(*shape, dtype=np.float64)),
        1e-12,
    )


# ---------------------------------------------------------------- random numbers


@pytest.mark.parametrize("alpha", [1.0, 1.1, 2.0, 100.0])
@pytest.mark.parametrize("left_over", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gammas_of_one_shape_keep_in_step(alpha, left_over, dtype):
    for n in (64, 65, 3001):
        found = []
        for library in (tensorgrad, torch):
            library.manual_seed(n)
            if left_over:  # half a pair of normals
                library.randn(1)
            values = library._standard_gamma(library.from_numpy(np.full(n, alpha, dtype))).numpy()
            found.append((values, library.randn(3).numpy(), library.rand(3).numpy()))
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=3e-7 if dtype == np.float32 else 1e-14)
        np.testing.assert_array_equal(found[0][1], found[1][1])
        np.testing.assert_array_equal(found[0][2], found[1][2])


@pytest.mark.parametrize("n", [384, 385, 1 << 16, (1 << 16) + 1])
def test_permutations_on_both_sides_of_each_limit(n):
    for library in (tensorgrad, torch):
        library.manual_seed(n)
    assert tensorgrad.randperm(n).tolist() == torch.randperm(n).tolist()
    assert tensorgrad.rand(3).tolist() == torch.rand(3).tolist()


@pytest.mark.parametrize("n", [16, 48, 4096, 4112])
def test_few_normals_and_many(n):
    for mean, std in ((0.0, 1.0), (2.0, 0.5)):
        for library in (tensorgrad, torch):
            library.manual_seed(n)
        mine, theirs = tensorgrad.empty(n).normal_(mean, std), torch.empty(n).normal_(mean, std)
        close = 4e-6 if last_bit() else 1e-6  # torch's kernels for old processors compute the cosine otherwise
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=close, atol=close)
        assert tensorgrad.rand(3).tolist() == torch.rand(3).tolist()


# ---------------------------------------------------------------- the largest elements


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_few_of_the_largest(largest, dtype):
    x = np.random.default_rng(0).permutation(60_000).reshape(200, 300).astype(dtype)
    mine = tensorgrad.topk(tensorgrad.from_numpy(x), 7, 1, largest)
    theirs = torch.topk(torch.from_numpy(x), 7, 1, largest)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_few_of_the_largest_among_limits():
    x = np.full((70, 80), -np.inf, np.float32)
    x[:, 3], x[5, 9], x[6, 7] = 1.0, np.nan, np.inf
    for largest in (True, False):
        values, places = tensorgrad.topk(tensorgrad.from_numpy(x), 4, 1, largest)
        np.testing.assert_array_equal(values.numpy(), torch.topk(torch.from_numpy(x), 4, 1, largest)[0].numpy())
        assert all(len(set(row)) == 4 for row in places.tolist())
