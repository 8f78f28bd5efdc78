"""Compiled kernels against NumPy's: normalisation per channel, cross-entropy, tables, running sums, LSTM."""

import numpy as np
import pytest
import torch

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from tests.support.compare import normal
from tests.support.kernels import assert_like_numpy, fixtures

F = tg.nn.functional
FILES = ("norm", "norm_of_rows", "loss", "embedding", "scan", "rnn", "reduce", "pointwise", "index")
ROWS = [row for row in table.ROWS if row.kernel.partition(".")[0] in FILES]
OF_THE_LOSS = {"sum"}  # these ops make one number of the results (see `with_gradients`)
compiled, used = fixtures(ROWS, OF_THE_LOSS)


def check(call, *arrays, rtol=1e-4, atol=2e-5):
    assert_like_numpy(call, *arrays, rtol=rtol, atol=atol)


SHAPES = [(4, 3), (33, 70), (2, 3, 1), (3, 4, 5), (2, 6, 7, 9), (3, 4, 8, 8), (2, 4, 3, 40), (1, 2, 300), (40, 2, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_batch_norm(shape, training, affine, used):
    c = shape[1]
    mean, var = (None, None) if training else (tg.linspace(-1, 1, c), tg.linspace(0.5, 2, c))
    parameters = {"both": [normal(c), normal(c, seed=1)], "weight": [normal(c)], "none": []}[affine]
    check(lambda x, *p: F.batch_norm(x, mean, var, *p, training=training), 3 + 2 * normal(*shape), *parameters,
          atol=5e-4)  # fmt: skip
    assert used == {"batch_norm", "batch_norm.backward"}


@pytest.mark.parametrize("shape", [(4, 20), (3, 8, 10), (2, 16, 9, 9), (1, 5, 3, 4, 5)])
def test_batch_norm_by_running_statistics(shape, used):
    """Without gradients; parameters with gaps go to NumPy."""
    c = shape[1]
    x, mean, var, w, b = normal(*shape), normal(c), np.abs(normal(c)) + 0.1, normal(c), normal(c)
    for given in ((w, b), (None, b), (w, None), (None, None)):
        tensors = [None if p is None else tg.from_numpy(p) for p in (mean, var, *given)]
        found = F.batch_norm(tg.from_numpy(x), *tensors)
        with tg.enable_grad():
            expected = F.batch_norm(tg.from_numpy(x).requires_grad_(), *tensors).detach()
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert used == {"batch_norm"}
    apart = [tg.from_numpy(np.repeat(p, 2))[::2] for p in (mean, var, w, b)]
    found = F.batch_norm(tg.from_numpy(x), *apart)
    expected = F.batch_norm(tg.from_numpy(x), *(t.contiguous() for t in apart))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match=r"expected running_mean to have 1 dimension, got shape \[\d+, 1\]"):
        F.batch_norm(tg.from_numpy(x), *(t[:, None] for t in apart))


@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 1), (3, 6, 5), (2, 6, 7, 9), (9, 6, 8, 8), (1, 6, 100)])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, groups, affine, used):
    if len(shape) == 2 and groups == 6:
        pytest.skip("one value per group: the gradient is rounding errors")
    if shape[2:] == (1,) and groups == 6:
        pytest.skip("one value per group: the gradient is rounding errors")
    parameters = [normal(6), normal(6, seed=1)] if affine else []
    check(lambda x, *p: F.group_norm(x, groups, *p), 1 + normal(*shape), *parameters, atol=2e-4)
    assert used == {"group_norm", "group_norm.backward"}


def test_only_some_gradients_of_a_norm():
    x, w, b = tg.randn(4, 3, 70), tg.randn(3), tg.randn(3)
    for wanted in (x, w, b):
        for norm in (lambda: F.batch_norm(x, None, None, w, b, True), lambda: F.group_norm(x, 3, w, b)):
            wanted.requires_grad_()
            (found,) = tg.autograd.grad(norm().square().sum(), wanted)
            assert found.shape == wanted.shape
            wanted.requires_grad_(False)


def test_statistics_far_from_zero():
    """A mean of a thousand deviations costs no more digits than float32 has to lose."""
    x = 1000 + normal(64, 4, 100)
    out = F.batch_norm(tg.from_numpy(x), None, None, training=True).numpy()
    wide = x.astype(np.float64)
    mean, std = wide.mean((0, 2), keepdims=True), wide.std((0, 2), keepdims=True)
    np.testing.assert_allclose(out, (wide - mean) / std, atol=2e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_norms_of_special_values(value):
    x = normal(3, 4, 70)
    x[1, 2, 5] = value
    check(lambda t: F.batch_norm(t, None, None, training=True), x)
    check(lambda t: F.group_norm(t, 2), x)


@pytest.mark.parametrize("shape", [(5, 100), (40, 65), (80, 33), (1, 3000), (7, 129)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
def test_cross_entropy(shape, reduction, ignored, used):
    target = np.random.default_rng(3).integers(0, shape[1], shape[0])
    if ignored != "none":
        target[:: 2 if ignored == "some" else 1] = -100
    call = lambda x: F.cross_entropy(x, tg.from_numpy(target), reduction=reduction)
    check(call, 4 * normal(*shape), rtol=1e-5, atol=1e-6)
    assert used == {"cross_entropy", "cross_entropy.backward"}


@pytest.mark.parametrize("shape", [(6, 3, 10), (5, 1, 40), (4, 7)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
def test_cross_entropy_of_samples(shape, reduction, ignored, used):
    """Within vmap each sample has its own sum or mean; `g` differs from sample to sample."""
    target = np.random.default_rng(3).integers(0, shape[-1], shape[:-1])
    if ignored != "none":
        target[:: 2 if ignored == "some" else 1] = -100
    found = []
    for lib in (tg, torch):
        x, t, g = (lib.tensor(a) for a in (4 * normal(*shape), target, normal(shape[0])))

        def loss(x, t, g, lib=lib):
            return g * lib.nn.functional.cross_entropy(x, t, reduction=reduction)

        slopes, losses = lib.func.vmap(lib.func.grad_and_value(loss))(x, t, g)
        same = lib.func.vmap(lib.func.grad(loss), in_dims=(0, 0, None))(x, t, lib.tensor(0.5))
        found.append([made.numpy() for made in (losses, slopes, same)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert {"cross_entropy_of_batch", "cross_entropy_of_batch_backward"} <= used


def test_cross_entropy_of_samples_with_a_wrong_class():
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        tg.func.vmap(F.cross_entropy)(tg.zeros(20, 2, 7), tg.full((20, 2), 7))


def test_cross_entropy_ignores_a_class_that_exists():
    x, target = normal(30, 100), np.arange(30) % 4
    check(lambda t: F.cross_entropy(t, tg.from_numpy(target), ignore_index=2), x, rtol=1e-5)


def test_cross_entropy_of_special_values():
    x = normal(6, 400)
    x[0, 3], x[1, 4], x[2, :], x[3, 0], x[4] = np.nan, np.inf, -np.inf, -np.inf, 1e30
    target = np.array([0, 1, 2, 0, 3, 4])
    check(lambda t: F.cross_entropy(t, tg.from_numpy(target), reduction="none"), x)


def test_cross_entropy_of_a_wrong_class():
    for wrong in (100, -1):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            F.cross_entropy(tg.randn(30, 100), tg.tensor([0] * 29 + [wrong]))


def test_second_derivative_of_cross_entropy(used):
    x = tg.randn(30, 100, requires_grad=True)
    (g,) = tg.autograd.grad(F.cross_entropy(x, tg.arange(30)), x, create_graph=True)
    (second,) = tg.autograd.grad((g * g).sum(), x)
    shares = x.detach().softmax(1)
    away = (shares - tg.eye(30, 100)) / 30
    expected = 2 / 30 * shares * (away - (away * shares).sum(1, True))
    np.testing.assert_allclose(second.numpy(), expected.numpy(), atol=1e-7)


@pytest.mark.parametrize("width", [1, 16, 33, 200])
@pytest.mark.parametrize("padding", [None, 3])
def test_embedding(width, padding, used):
    rows = np.random.default_rng(4).integers(0, 11, (13, 7))
    check(lambda t: F.embedding(tg.from_numpy(rows), t, padding), normal(11, width))
    check(lambda t: F.embedding(tg.from_numpy(rows.astype(np.int32)), t, padding), normal(11, width))
    assert {"embedding", "embedding_grad"} <= used


def test_embedding_whose_gradient_lies_the_other_way_round(used):
    rows = np.random.default_rng(4).integers(0, 11, (13, 7))
    check(lambda t: F.embedding(tg.from_numpy(rows), t).transpose(0, 1).contiguous(), normal(11, 40))
    assert "embedding_grad" in used


@pytest.mark.parametrize("wrong", [-1, 11])
def test_embedding_of_a_row_that_is_not_there(wrong):
    rows = np.full((13, 7), 3)
    rows[12, 6] = wrong
    with pytest.raises(IndexError, match="index out of range in self"):
        F.embedding(tg.from_numpy(rows), tg.from_numpy(normal(11, 16)))


@pytest.mark.parametrize("view", ["transposed", "every other"])
def test_embedding_in_tables_with_gaps(view):
    table = normal(40, 22)
    rows = np.random.default_rng(4).integers(0, 20, (13, 7))
    table = table[:20].T[:20, :20] if view == "transposed" else table[::2]
    check(lambda t: F.embedding(tg.from_numpy(rows), t), table)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("offsets", [[0, 3, 3, 9], [0, 0, 12], [0, 4, 8]])
def test_bags(mode, offsets, used):
    rows = np.random.default_rng(5).integers(0, 11, 12)
    check(lambda t: F.embedding_bag(tg.from_numpy(rows), t, tg.tensor(offsets), mode=mode), normal(11, 40))
    check(lambda t: F.embedding_bag(tg.from_numpy(rows.reshape(4, 3)), t, mode=mode), normal(11, 40))
    weights = normal(12, seed=6)
    weighted = lambda t, w: F.embedding_bag(
        tg.from_numpy(rows), t, tg.tensor(offsets), mode="sum", per_sample_weights=w
    )
    check(weighted, normal(11, 40), weights)
    assert {"bag_lookup", "bag_lookup_grad", "bag_sum"} <= used


@pytest.mark.parametrize(
    ("shape", "dim", "count"), [((9,), 0, 14), ((5, 7), 0, 9), ((5, 7), 1, 3), ((3, 4, 70), 1, 5), ((3, 4, 5), 0, 6)]
)
def test_gather_and_scatter(shape, dim, count, used):
    at = (*shape[:dim], count, *shape[dim + 1 :])
    index = tg.from_numpy(np.random.default_rng(7).integers(0, shape[dim], at))
    check(lambda t: t.gather(dim, index), normal(*shape))
    check(lambda t, s: t.scatter_add(dim, index, s), normal(*shape), normal(*at, seed=1))
    more = normal(*(n + 2 for n in at), seed=1)
    check(lambda t: t.scatter(dim, index.flip(0), tg.from_numpy(more)), normal(*shape))
    assert {"gather", "scatter", "scatter_add"} <= used
    for wrong in (-1, shape[dim]):
        with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds"):
            tg.ones(shape).gather(dim, tg.full(at, wrong))
    for other in set(range(len(shape))) - {dim}:  # fewer places in another dimension
        less = index.narrow(other, 0, 2)
        check(lambda t, less=less: t.gather(dim, less), normal(*shape))
        check(lambda t, s, less=less: t.scatter_add(dim, less, s), normal(*shape), normal(*at, seed=1))


@pytest.mark.parametrize(("shape", "dim"), [((9,), 0), ((5, 7), 0), ((5, 130), 0), ((5, 7), 1), ((3, 4, 70), 1)])
def test_index_add(shape, dim, used):
    index = np.random.default_rng(8).integers(0, shape[dim], 11)
    source = normal(*shape[:dim], 11, *shape[dim + 1 :], seed=1)
    source.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    for alpha in (1, -0.5):
        check(lambda t, s, a=alpha: t.index_add(dim, tg.from_numpy(index), s, alpha=a), normal(*shape), source)
    assert "index_add" in used
    with pytest.raises(RuntimeError, match=f"index {shape[dim]} is out of bounds"):
        tg.ones(shape).index_add(dim, tg.full((11,), shape[dim]), tg.from_numpy(source))


@pytest.mark.parametrize("shape", [(1,), (9,), (5, 7), (4, 3, 6), (3, 1000), (1000, 3), (2, 3, 700), (6, 1)])
def test_running_sums(shape, used):
    for dim in range(len(shape)):
        check(lambda t, dim=dim: t.cumsum(dim), normal(*shape), rtol=1e-6, atol=1e-6)
    assert used == {"cumsum", "cumsum_reversed"}


def test_running_sums_of_special_values():
    x = normal(5, 9)
    x[0, 3], x[1, 4], x[2, :2] = np.nan, np.inf, (np.inf, -np.inf)
    for dim in (0, 1):
        check(lambda t, dim=dim: t.cumsum(dim), x)


def test_running_sums_are_taken_in_double_precision():
    x = tg.full((4, 100_000), 0.1)
    assert x.cumsum(1)[0, -1].item() == np.float32(np.cumsum(np.full(100_000, np.float32(0.1), np.float64))[-1])


@pytest.mark.parametrize("lengths", [(4, 4, 4), (5, 3, 1)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"bias": False, "num_layers": 2}, {"proj_size": 3}])
def test_lstm(lengths, options, used):
    tg.manual_seed(0)
    net = tg.nn.LSTM(4, 6, batch_first=True, **options)

    def call(x):
        packed = tg.nn.utils.rnn.pack_padded_sequence(x, tg.tensor(lengths), batch_first=True)
        out, (h, c) = net(packed)
        gradients = tg.autograd.grad(out.data.square().sum() + c.sum(), list(net.parameters()), retain_graph=True)
        return out.data, h, c, *gradients[:0], x * gradients[0].sum()

    check(call, normal(3, max(lengths), 4))
    assert ("lstm_layer" in used) is ("proj_size" not in options)


@pytest.mark.parametrize("lengths", [(4, 4, 4), (5, 3, 1)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"bias": False, "num_layers": 2}])
def test_gru(lengths, options, used):
    tg.manual_seed(0)
    net = tg.nn.GRU(4, 6, batch_first=True, **options)

    def call(x):
        packed = tg.nn.utils.rnn.pack_padded_sequence(x, tg.tensor(lengths), batch_first=True)
        out, h = net(packed)
        gradients = tg.autograd.grad(out.data.square().sum() + h.sum(), list(net.parameters()), retain_graph=True)
        return out.data, h, *(x.sum() * g for g in gradients)

    check(call, normal(3, max(lengths), 4))
    assert {"gru_layer", "gru_layer.backward"} <= used


SIZES_OF_LAYERS = [  # steps, sequences, features, hidden units
    (5, 37, 5, 33), (5, 1, 1, 3), (5, 16, 20, 64), (5, 5, 128, 128), (5, 3, 140, 128),
    (30, 37, 5, 33), (70, 5, 48, 16), (3, 300, 7, 24), (600, 1, 3, 5),  # the gradients of the weights in stretches
]  # fmt: skip


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("steps", "batch", "inside", "hidden"), SIZES_OF_LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_of_other_sizes(kind, steps, batch, inside, hidden, batch_first, used):
    tg.manual_seed(1)
    net = getattr(tg.nn, kind)(inside, hidden)
    weights = [p.detach().numpy() for p in net.parameters()]
    states = [normal(1, batch, hidden, seed=k) for k in range(2 if kind == "LSTM" else 1)]

    def call(x, *rest):
        h = rest[: len(states)]
        given = h if kind == "LSTM" else h[0]
        return getattr(tg, kind.lower())(x, given, rest[len(states) :], True, 1, 0.0, False, False, batch_first)

    x = normal(batch, steps, inside) if batch_first else normal(steps, batch, inside)
    check(call, x, *states, *weights, rtol=3e-4, atol=1e-4 * max(1, steps * batch / 200))
    assert f"{kind.lower()}_layer.backward" in used


@pytest.mark.parametrize("shape", [(1,), (7,), (40_000,), (3, 5), (2, 3, 70), (16384,)])
def test_products(shape, used):
    x = 1 + 0.01 * normal(*shape)
    check(lambda t: t.prod(), x)
    check(lambda t: t.prod(-1), x)
    check(lambda t: t.prod(-1, keepdim=True), x)
    x[..., 0] = np.nan
    check(lambda t: t.prod(-1), x)
    assert used == {"prod"}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e30])
def test_recurrent_layers_of_infinite_inputs(kind, value, used):
    def gradients(library):
        net = getattr(library.nn, kind)(32, 64)
        with library.no_grad():
            for k, p in enumerate(net.parameters()):
                p.copy_(library.from_numpy(0.1 * normal(*p.shape, seed=k)))
        x = library.ones(6, 16, 32)
        x[0, 0, 0] = value
        out, _ = net(x.requires_grad_())
        out.sum().backward()
        return [out, x.grad, *(p.grad for p in net.parameters())]

    for ours, theirs in zip(gradients(tg), gradients(torch), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-3, atol=1e-4)
    assert f"{kind.lower()}_layer.backward" in used


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_backward_of_activations(name, used):
    x = normal(5, 33)
    x[0, :3] = np.nan, 0, np.inf
    check(getattr(tg, name), x)
    assert f"{name}.backward" in used


def test_empty_and_other_dtypes():
    x = tg.zeros(0, 3, 4)
    assert F.group_norm(x, 3).shape == x.shape and x.cumsum(1).shape == x.shape
    for dtype in (tg.float64, tg.float16):
        t = tg.linspace(-2, 2, 60).reshape(5, 3, 4).to(dtype)
        assert t.cumsum(-1).dtype is dtype and F.batch_norm(t, None, None, training=True).dtype is dtype
    gaps = tg.linspace(-2, 2, 60).reshape(5, 3, 4).transpose(1, 2)
    np.testing.assert_allclose(gaps.cumsum(1).numpy(), gaps.numpy().cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(
        F.batch_norm(gaps, None, None, training=True).numpy(),
        F.batch_norm(gaps.contiguous(), None, None, training=True).numpy(), atol=1e-6,
    )  # fmt: skip


def test_results_do_not_depend_on_threads():
    x, w, rows = tg.randn(32, 48, 16, 16), tg.randn(300, 256), tg.randint(300, (4000,))
    logits, target = tg.randn(256, 1000), tg.randint(1000, (256,))
    small = tg.randn(600, 300, 2)

    def results():
        found = []
        for call, leaf in (
            (lambda t: F.batch_norm(t, None, None, training=True), x), (lambda t: F.group_norm(t, 8), x),
            (lambda t: F.batch_norm(t, None, None, training=True), small), (lambda t: F.group_norm(t, 10), small),
            (lambda t: F.embedding(rows, t), w), (lambda t: F.cross_entropy(t, target), logits),
            (lambda t: t.cumsum(1), logits), (lambda t: t.cumsum(0), logits),
            (lambda t: F.embedding_bag(rows.view(-1, 8), t), w),
        ):  # fmt: skip
            t = leaf.detach().requires_grad_()
            out = call(t)
            found += [out.detach(), *tg.autograd.grad((out * out).sum(), t)]
        return found

    before = tg.get_num_threads()
    try:
        tg.set_num_threads(1)
        one = results()
        tg.set_num_threads(3)
        three = results()
    finally:
        tg.set_num_threads(before)
    assert all(bool((a == b).all()) for a, b in zip(one, three, strict=True))
