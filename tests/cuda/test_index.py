"""Reading and adding by indices, sums along a dimension, sorting: on the device against torch on the CPU."""

import numpy as np
import pytest

import tensorgrad
from tests.cuda.compare import assert_close_on_gpu

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("tensorgrad.kernels.cuda.index")

FLOATING = ("float32", "float64", "float16", "bfloat16")
ALL = (*FLOATING, "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
TOLERANCE = {"float32": 1e-6, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 1e-6}


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves a note of a wrong index, or a setting, to the next."""
    yield
    from tensorgrad.kernels.cuda.runtime import bounds

    tensorgrad.use_deterministic_algorithms(False)
    bounds.look()


@pytest.fixture(params=[False, True], ids=["any order", "deterministic"])
def deterministic(request):
    tensorgrad.use_deterministic_algorithms(request.param)
    return request.param


def both(values, dtype=None):
    """The same tensor for both libraries: (ours on the device, theirs on the CPU)."""
    theirs = torch.tensor(values)
    theirs = theirs if dtype is None else theirs.to(getattr(torch, dtype))
    wide = theirs.to(torch.float32) if theirs.dtype is torch.bfloat16 else theirs
    ours = tensorgrad.tensor(wide.numpy())
    return (ours if dtype is None else ours.to(getattr(tensorgrad, dtype))).to("cuda"), theirs.clone()


def numbers(*shape, seed=0, whole=False):
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return np.round(values * 8) if whole else values


def places(size, *shape, seed=1):
    return np.random.default_rng([seed, *shape]).integers(0, size, shape)


def compare(call, *pairs):
    """The result of a call, and the gradients of its floating arguments, against torch's."""
    results = []
    for side, library in ((0, tensorgrad), (1, torch)):
        given = [pair[side].detach() for pair in pairs]
        leaves = [t.requires_grad_() for t in given if t.is_floating_point()]
        out = call(library, *given)
        grads = []
        if leaves and out.is_floating_point():
            g = both(numbers(*out.shape, seed=9), str(pairs[0][1].dtype).removeprefix("torch."))[side]
            out.backward(g)
            grads = [t.grad for t in leaves]
        results.append([out, *grads])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert_close_on_gpu(ours, theirs, TOLERANCE)


# --- embedding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
def test_embedding(deterministic, dtype, options):
    table, rows = both(numbers(7, 12), dtype), both(places(7, 4, 9))
    compare(lambda t, w, i: t.nn.functional.embedding(i, w, **options), table, rows)


@pytest.mark.parametrize("width", [1, 3, 300])
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_embedding_of_any_width(width, kind):
    table, rows = both(numbers(5, width), "float32"), both(places(5, 11), kind)
    compare(lambda t, w, i: t.nn.functional.embedding(i, w), table, rows)
    compare(lambda t, w, i: t.nn.functional.embedding(i[:0], w), table, rows)
    compare(lambda t, w, i: t.nn.functional.embedding(i[0], w), table, rows)


def test_layers_of_embeddings_train():
    grads = []
    for side, library in ((0, tensorgrad), (1, torch)):
        layer = library.nn.Embedding(6, 4, padding_idx=0)
        layer.weight.data = both(numbers(6, 4), "float32")[side]
        layer(both(places(6, 5))[side]).pow(2).sum().backward()
        grads.append(layer.weight.grad)
    assert_close_on_gpu(*grads, TOLERANCE)


def test_second_derivatives_of_embeddings():
    table, rows = both(numbers(5, 3), "float64"), both(places(5, 6))

    def twice(t, w, i):
        (g,) = t.autograd.grad(t.nn.functional.embedding(i, w).pow(3).sum(), w, create_graph=True)
        return g.pow(2)

    compare(twice, table, rows)


# --- rows and elements -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL)
def test_every_dtype_is_read_and_written(dtype):
    x = numbers(5, 6, whole=True)
    if dtype in ("uint8", "bool"):
        x = abs(x)
    source = both(x, dtype)
    index = both(places(5, 4))
    compare(lambda t, x, i: x[i], source, index)
    compare(lambda t, x, i: x.index_select(1, i), source, index)
    compare(lambda t, x, i: x.gather(0, i), source, both(places(5, 3, 6)))
    compare(lambda t, x, i: x.index_copy(0, i, x[:4] * 2 if dtype != "bool" else ~x[:4]), source, both([3, 0, 4, 1]))
    if dtype != "bool":
        compare(lambda t, x, i: x.scatter_add(0, i, x), source, both(places(5, 5, 6)))
        compare(lambda t, x, i: x.index_add(0, i, x[:4]), source, index)
        compare(lambda t, x, i: x.index_put((i,), x[:4], accumulate=True), source, index)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_slices_along_any_dimension(deterministic, dim):
    x = both(numbers(4, 5, 6), "float32")
    size = x[1].shape[dim]
    index = both(places(size, 9))
    shape = list(x[1].shape)
    shape[dim] = 9
    source = both(numbers(*shape, seed=2), "float32")
    compare(lambda t, x, i: x.index_select(dim, i), x, index)
    compare(lambda t, x, i, s: x.index_add(dim, i, s, alpha=-1.5), x, index, source)
    each = both(places(size, *shape))
    compare(lambda t, x, i: x.gather(dim, i), x, each)
    compare(lambda t, x, i, s: x.scatter_add(dim, i, s), x, each, source)
    compare(lambda t, x, i: x.take_along_dim(i, dim), x, each)
    everywhere = both(np.argsort(numbers(4, 5, 6, seed=8), axis=dim))
    compare(lambda t, x, i: x.scatter(dim, i, x * 2), x, everywhere)
    compare(lambda t, x, i: x.scatter(dim, i, 3.5), x, each)


def test_an_index_that_covers_a_part(deterministic):
    x, source = both(numbers(4, 5), "float32"), both(numbers(4, 5, seed=3), "float32")
    part = both(places(4, 3, 2))
    compare(lambda t, x, i: x.gather(0, i), x, part)
    compare(lambda t, x, i, s: x.scatter_add(0, i, s[:3, :2]), x, part, source)
    compare(lambda t, x, i, s: x.scatter_add(0, i, s.detach()), x, part, source)
    whole = both(places(4, 3, 5))
    compare(lambda t, x, i, s: x.scatter_add(0, i, s.detach()), x, whole, source)
    compare(lambda t, x, i: x.scatter(0, i, 2.5), x, both(np.array([[1, 0, 3, 2, 1]])))
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        compare(lambda t, x, i, s, r=reduce: x.scatter_reduce(0, i, s[:3, :2], r), x, part, source)


@pytest.mark.parametrize(
    "key",
    [
        lambda i, j, m: i, lambda i, j, m: (slice(None), i), lambda i, j, m: (Ellipsis, i), lambda i, j, m: i[:, None],
        lambda i, j, m: (i, j), lambda i, j, m: (i, slice(None), j), lambda i, j, m: (slice(1, 3), i),
        lambda i, j, m: m, lambda i, j, m: (i, j, 2), lambda i, j, m: (None, i), lambda i, j, m: -1 - i,
    ],
)  # fmt: skip
def test_what_stands_between_brackets(deterministic, key):
    x = both(numbers(4, 4, 4), "float32")
    i, j, mask = both(places(4, 5)), both(places(4, 5, seed=6)), both(numbers(4, 4) > 0)
    compare(lambda t, x, i, j, m: x[key(i, j, m)], x, i, j, mask)

    def written(t, x, i, j, m):
        y = x.clone()
        y[key(i, j, m)] = 7.0
        return y

    compare(written, x, i, j, mask)


@pytest.mark.parametrize("indices", [lambda i, j: (i,), lambda i, j: (i, j), lambda i, j: (i[:, None] - 4, j)])
def test_adding_where_indices_point(deterministic, indices):
    x, i, j = both(numbers(4, 4, 4), "float32"), both(places(4, 5)), both(places(4, 5, seed=6))
    compare(lambda t, x, i, j: x.clone().index_put_(indices(i, j), x[indices(i, j)] * 2, True), x, i, j)
    compare(lambda t, x, i, j: x.clone().index_put_(indices(i, j), x[0, 0], True), x, i, j)
    with pytest.raises(RuntimeError):
        x[0].clone().index_put_(indices(i[0], j[0]), tensorgrad.ones(3, device="cuda"), True)


def test_elements_counted_through():
    x, i = both(numbers(3, 4), "float32"), both(np.array([[0, -1], [5, 11]]))
    compare(lambda t, x, i: x.take(i), x, i)
    compare(lambda t, x, i: x.clone().put_(i, x.reshape(-1)[:4].reshape(2, 2), accumulate=True), x, i)
    compare(lambda t, x, m: x.masked_select(m), x, both(numbers(3, 4) > 0))
    compare(lambda t, x, i: x.index_fill(1, i, 3.0), x, both([1, -1]))


def test_sums_of_every_kind_keep_their_order():
    tensorgrad.use_deterministic_algorithms(True)
    x, i, j = both(np.zeros((3, 3)), "float32")[0], both(places(3, 400))[0], both(places(3, 400, seed=5))[0]
    g = both(numbers(400), "float32")[0]
    expected = np.zeros((3, 3), np.float32)
    for a, b, v in zip(i.tolist(), j.tolist(), g.cpu().numpy(), strict=True):
        expected[a, b] += v
    for found in (
        x.index_put((i, j), g, accumulate=True),
        x.flatten().scatter_reduce(0, i * 3 + j, g, "sum").reshape(3, 3),
        x.flatten().scatter_add(0, i * 3 + j, g).reshape(3, 3),
        x.clone().put_(i * 3 + j, g, accumulate=True),
    ):
        np.testing.assert_array_equal(found.cpu().numpy(), expected)


def test_the_last_of_several_stays_if_that_is_asked_for():
    tensorgrad.use_deterministic_algorithms(True)
    x, i = both(numbers(3, 500), "float32"), both(places(3, 1, 500))
    rows = both(places(3, 40, 500))
    source = both(numbers(40, 500, seed=4), "float32")
    compare(lambda t, x, i, s: x.scatter(0, i, s), x, rows, source)
    compare(lambda t, x, i: x.scatter(0, i, 2.0), x, i)


def test_the_same_place_many_times(deterministic):
    """Sums of 16-bit numbers are kept in float32, as those of the CPU are."""
    rows = both(np.zeros(3000, np.int64))
    for dtype in ("float16", "bfloat16"):
        ones = both(np.full((3000, 1), 0.5), dtype)
        total = tensorgrad.zeros(2, 1, device="cuda", dtype=getattr(tensorgrad, dtype)).index_add(0, rows[0], ones[0])
        assert total.flatten().tolist() == [1500.0 if dtype == "float16" else 1504.0, 0.0]


def test_deterministic_sums_repeat_to_the_bit():
    tensorgrad.use_deterministic_algorithms(True)
    rows, g = both(places(3, 500))[0], both(numbers(500, 7), "float32")[0]
    x = tensorgrad.zeros(3, 7, device="cuda")
    first = x.index_add(0, rows, g)
    order = np.argsort(rows.cpu().numpy(), kind="stable")
    expected = np.zeros((3, 7), np.float32)
    for k in order:
        expected[rows[int(k)].item()] += g[int(k)].cpu().numpy()
    np.testing.assert_array_equal(first.cpu().numpy(), expected)
    assert (x.index_add(0, rows, g) == first).all()


# --- out of bounds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x, i: t.nn.functional.embedding(i, x), lambda t, x, i: x[i], lambda t, x, i: x[:, i],
        lambda t, x, i: x.index_select(0, i), lambda t, x, i: x.gather(0, i[:, None].expand(3, 4)),
        lambda t, x, i: x.gather(0, i[:, None]), lambda t, x, i: x.index_add(0, i, x[:3]),
        lambda t, x, i: x.scatter_add(0, i[:, None].expand(3, 4), x), lambda t, x, i: x.index_copy(0, i, x[:3]),
        lambda t, x, i: x.scatter(0, i[:, None], 1.0), lambda t, x, i: x[i, i], lambda t, x, i: x.index_fill(0, i, 1.0),
        lambda t, x, i: x.take(i * 4), lambda t, x, i: x.index_put((i,), x[:3], accumulate=True),
        lambda t, x, i: x.index_put((i,), x[:3]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrong", [4, 100_000_000, -5])
def test_wrong_indices_raise_when_a_value_comes_to_the_host(deterministic, call, wrong):
    """... and nothing outside of the arrays is touched, which the emulator would notice."""
    (x, their_x), (i, their_i) = both(numbers(4, 4), "float32"), both(np.array([1, wrong, 0]))
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        call(torch, their_x, their_i)
    with pytest.raises(theirs.type, match="out of bounds"):
        call(tensorgrad, x, i).sum().item()
    assert x.sum().item() == pytest.approx(float(x.cpu().numpy().sum()), rel=1e-5)


def test_wrong_indices_raise_at_the_next_op_that_takes_some():
    x, i = both(numbers(4, 4), "float32")[0], both(np.array([1, 7]))[0]
    _ = x[i]
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        x[i - 6]
    assert x[i - 5].shape == (2, 4)  # said once
    _ = x.gather(0, i[:, None])
    with pytest.raises(RuntimeError, match="index 7 is out of bounds for dimension 0 with size 4"):
        tensorgrad.cuda.synchronize()


def test_the_host_does_not_wait_for_the_gpu(deterministic):
    cupyx = pytest.importorskip("cupyx")
    x, i = both(numbers(4, 4), "float32")[0].requires_grad_(), both(places(4, 3))[0]
    with cupyx.allow_synchronize(False):
        rows = tensorgrad.nn.functional.embedding(i, x) + x[i] + x.index_select(0, i) + x.take(i).unsqueeze(1)
        each = x.gather(0, i[:, None]) + x.gather(1, i.expand(4, 3)).sum() + x.scatter(0, i[:, None], 2.0).sum()
        more = x.index_add(0, i, rows).sum() + x.index_fill(1, i, 0.5).sum() + x.index_copy(0, i, rows).sum()
        (rows.sum() + each.sum() + more + x[i, i].sum()).backward()
    assert x.grad.shape == (4, 4)


# --- along a dimension -----------------------------------------------------------------------------------------------

NANS = np.array([[3.0, np.nan, -1.0, 3.0, np.inf], [0.0, -np.inf, np.nan, np.nan, 2.0]])


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums(dtype, dim):
    x = both(abs(numbers(5, 6, whole=True)) % 4, dtype)
    compare(lambda t, x: x.cumsum(dim), x)
    compare(lambda t, x: x.cumprod(dim), x)


def test_running_extremes_and_logarithms():
    x = both(NANS, "float32")
    for name in ("cummax", "cummin"):
        for part in (0, 1):
            assert_close_on_gpu(getattr(x[0], name)(1)[part], getattr(x[1], name)(1)[part], TOLERANCE)
    compare(lambda t, x: x.logcumsumexp(0), both(numbers(5, 3), "float64"))


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting(dtype, descending):
    x = both(NANS, dtype) if dtype in FLOATING else both(abs(numbers(4, 30, whole=True)), dtype)
    for dim in (0, 1):
        ours, theirs = (t.sort(dim=dim, descending=descending, stable=True) for t in x)
        assert_close_on_gpu(ours[0], theirs[0], TOLERANCE)
        assert_close_on_gpu(ours[1], theirs[1], TOLERANCE)
        assert_close_on_gpu(x[0].argsort(dim, descending, stable=True), theirs[1], TOLERANCE)


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "int32"])
@pytest.mark.parametrize("largest", [False, True])
def test_the_largest_and_the_smallest(dtype, largest):
    rows = np.random.default_rng(0).permuted(np.tile(np.arange(-20.0, 21.0), (3, 1)), axis=1)
    x = both(rows, dtype)
    for k in (1, 5, 41):
        ours, theirs = x[0].topk(k, 1, largest), x[1].topk(k, 1, largest)
        assert_close_on_gpu(ours[0], theirs[0], TOLERANCE)
        assert_close_on_gpu(ours[1], theirs[1], TOLERANCE)
    if dtype in FLOATING:
        ours, theirs = both(NANS, dtype)
        assert_close_on_gpu(ours.topk(2, 1, largest)[0], theirs.topk(2, 1, largest)[0], TOLERANCE)
        assert_close_on_gpu(ours.kthvalue(2, 1)[0], theirs.kthvalue(2, 1)[0], TOLERANCE)
        assert_close_on_gpu(ours.median(1)[0], theirs.median(1)[0], TOLERANCE)


def test_different_values_and_places_among_sorted_ones():
    x = both([3.0, 1.0, 2.0, 1.0, 3.0, 3.0], "float32")
    for ours, theirs in zip(
        x[0].unique(return_inverse=True, return_counts=True), x[1].unique(return_inverse=True, return_counts=True),
        strict=True,
    ):  # fmt: skip
        assert_close_on_gpu(ours, theirs, TOLERANCE)
    edges = both([1.0, 2.0, 3.0], "float32")
    compare(lambda t, e, x: t.searchsorted(e.detach(), x.detach()), edges, x)
    compare(lambda t, e, x: t.bucketize(x.detach(), e.detach(), right=True), edges, x)
