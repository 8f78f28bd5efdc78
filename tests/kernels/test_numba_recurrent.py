"""Compiled recurrent layers beside torch: layouts, directions, projections, dropout, packed sequences, dtypes."""

import numpy as np
import pytest

from tests.support.kernels import absent

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

if absent():
    pytest.skip(absent(), allow_module_level=True)

import tensorgrad as tg  # noqa: E402
from tensorgrad.kernels.compiled import table  # noqa: E402
from tests.support.compare import assert_close, normal  # noqa: E402
from tests.support.kernels import fixtures  # noqa: E402

ROWS = [row for row in table.ROWS if row.kernel.partition(".")[0] in ("rnn", "rnn_few")]
compiled, used = fixtures(ROWS)


def run(library, kind, x, way, dtype="float32", hidden=21, **options):
    """Returns the output, the final states, and the gradients of the input, the first states and all weights."""
    library.manual_seed(0)
    layer = getattr(library.nn, kind)(9, hidden, dtype=getattr(library, dtype), **options)
    given = library.tensor(x, dtype=getattr(library, dtype), requires_grad=True)
    first = options.get("batch_first", False)
    if way == "transposed":  # in memory, the other order
        given_now = given.transpose(0, 1)
    elif way == "sliced":
        given_now = given[:, :, ::2]
    else:
        given_now = given
    directions = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    batch = given_now.shape[0 if first else 1]
    sizes = [options.get("proj_size") or hidden, hidden] if kind == "LSTM" else [hidden]
    states = [
        library.tensor(normal(directions, batch, size, seed=n), dtype=getattr(library, dtype), requires_grad=True)
        for n, size in enumerate(sizes)
    ]
    h = tuple(states) if kind == "LSTM" else states[0]
    library.manual_seed(1)
    if way == "packed":
        rnn = library.nn.utils.rnn
        lengths = [given.shape[1 if first else 0] - n // 2 for n in range(batch)]
        packed, final = layer(rnn.pack_padded_sequence(given_now, lengths, batch_first=first), h)
        out = packed.data
    else:
        out, final = layer(given_now, h)
    found = [out, *(final if isinstance(final, tuple) else [final])]
    loss = sum((t * t.sin()).sum() for t in found)
    return [*found, *library.autograd.grad(loss, [given, *states, *layer.parameters()])]


OPTIONS = [
    {}, {"batch_first": True}, {"bidirectional": True, "batch_first": True}, {"num_layers": 2, "batch_first": True},
    {"num_layers": 3, "dropout": 0.5, "batch_first": True}, {"bias": False, "bidirectional": True},
]  # fmt: skip


def compare(kind, shape, way="plain", dtype="float32", **options):
    x = normal(*shape)
    mine, theirs = (run(library, kind, x, way, dtype, **options) for library in (tg, torch))
    for n, (a, e) in enumerate(zip(mine, theirs, strict=True)):
        assert tuple(a.shape) == tuple(e.shape)
        expected = e.detach().numpy()
        scale = max(1.0, float(np.abs(expected).max()))
        assert_close(a.detach().numpy(), expected, 2e-4 if dtype == "float32" else 1e-9, atol=1e-4 * scale, what=str(n))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("way", ["plain", "transposed", "packed"])
def test_layers(kind, options, way, used):
    compare(kind, (27, 19, 9), way, **options)
    assert used == {f"{kind.lower()}_layer", f"{kind.lower()}_layer.backward"}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch", [1, 2, 3, 4])
@pytest.mark.parametrize("hidden", [2, 21, 64])
@pytest.mark.parametrize("way", ["plain", "packed"])
def test_few_sequences(kind, batch, hidden, way, used):
    compare(kind, (6, batch, 9), way, hidden=hidden)
    assert f"{kind.lower()}_layer" in used


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("way", ["plain", "transposed", "packed"])
def test_layers_on_few_sequences(kind, options, way, used):
    compare(kind, (3, 4, 9), way, **options)
    assert f"{kind.lower()}_layer" in used


def test_a_plain_recurrence_of_few_sequences(used):
    compare("RNN", (6, 3, 9), nonlinearity="relu", num_layers=2)
    assert used == {"rnn_layer"}


def test_a_plain_recurrence_of_many_sequences_is_left_to_numpy(used):
    compare("RNN", (6, 5, 9))
    assert not used


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_sliced_features(kind, batch_first, used):
    compare(kind, (7, 5, 18), "sliced", batch_first=batch_first)
    assert used


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_double_precision_is_left_to_numpy(kind, used):
    compare(kind, (7, 5, 9), dtype="float64", batch_first=True)
    assert not used


@pytest.mark.parametrize("way", ["plain", "packed"])
def test_projections_are_left_to_numpy(way, used):
    compare("LSTM", (7, 5, 9), way, batch_first=True, proj_size=4, num_layers=2)
    assert not used


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_gradient_that_is_expanded(kind):
    """That of a sum repeats one number."""
    results = []
    for library in (tg, torch):
        library.manual_seed(0)
        layer = getattr(library.nn, kind)(9, 21, batch_first=True)
        x = library.tensor(normal(6, 50, 9), requires_grad=True)
        layer(x)[0].sum().backward()
        results.append([x.grad, *(p.grad for p in layer.parameters())])
    for a, e in zip(*results, strict=True):
        assert_close(a.numpy(), e.numpy(), 2e-4, atol=2e-4 * max(1.0, float(e.abs().max())))
