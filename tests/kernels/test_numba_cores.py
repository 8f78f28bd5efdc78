"""With more threads than this machine has processors: the same numbers to the last bit, and work for all of them.

Each thread's range is run by itself, as `benchmarks.cores` does to model what more processors would bring.
"""

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tests.support.kernels import absent

if absent():
    pytest.skip(absent(), allow_module_level=True)
from benchmarks import cores
from benchmarks.worker import settle
from tensorgrad.kernels.compiled.runtime import thread_pool
from tests.support.compare import normal
from tests.support.kernels import load_kernels, with_gradients

F = tg.nn.functional


def leaf(*shape, seed=0):
    return tg.tensor(normal(*shape, seed=seed), requires_grad=True)


def convolution(batch, ins, outs, size, taps, stride):
    x, w, b = leaf(batch, ins, size, size), leaf(outs, ins, taps, taps, seed=1), leaf(outs)
    return lambda: with_gradients(F.conv2d(x, w, b, stride=stride, padding=1), (x, w, b))


def transposed():
    x, w = leaf(20, 24, 14, 14), leaf(24, 40, 3, 3, seed=1)
    return lambda: with_gradients(F.conv_transpose2d(x, w, stride=2), (x, w))


def recurrent(kind, batch):
    tg.manual_seed(0)
    net, x = kind(40, 64), leaf(12, batch, 40)
    return lambda: with_gradients(net(x)[0], (x, *net.parameters()))


def normed():
    x, w, b = leaf(700, 160), leaf(160), leaf(160, seed=1)
    return lambda: with_gradients(F.layer_norm(x, (160,), w, b), (x, w, b))


def table_of(width):
    rows, weight = tg.tensor(np.random.default_rng(0).integers(0, 300, (40, 100))), leaf(300, width)
    return lambda: with_gradients(F.embedding(rows, weight, padding_idx=7), (weight,))


def bags(width):
    rows, weight = tg.tensor(np.random.default_rng(0).integers(0, 90, (400, 20))), leaf(90, width)
    return lambda: with_gradients(F.embedding_bag(rows, weight, mode="mean"), (weight,))


def attended():
    q, k, v = (leaf(2, 3, 300, 32, seed=n) for n in range(3))
    return lambda: with_gradients(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v))


def products(rows, columns, depth):
    x, w, b = leaf(rows, depth), leaf(columns, depth, seed=1), leaf(columns)
    return lambda: with_gradients(F.linear(x, w, b), (x, w, b))


def joined(batch=9):
    a, b, c = leaf(batch, 90, 128), leaf(batch, 90, 64, seed=1), leaf(batch, 64, 90, seed=2)
    return lambda: with_gradients(tg.cat([a, b, c.transpose(1, 2)], 2), (a, b, c))


def rearranged(rows=40):
    x = leaf(rows, 50, 64)
    return lambda: [x.detach().transpose(0, 1).contiguous(), x.detach()[:, 3:, 5:].reshape(-1)]


def summed():
    x, y = leaf(3000, 40), leaf(5, 300, 70)
    return lambda: [*with_gradients(x.sum(0), (x,)), *with_gradients(y.mean((0, 1)), (y,))]


def optimized(kind, rows=300, **options):
    """Steps with clipped gradients; one parameter has none, one is empty."""

    def program():
        x = [leaf(rows, 200), leaf(7), leaf(0), leaf(1), leaf(64, 65), leaf(40_000), leaf(3, 5, 7)]
        steps = kind(x, **options)
        norms = []
        for n in range(3):
            for k, p in enumerate(x[:-1]):
                p.grad = tg.tensor(normal(*p.shape, seed=10 * n + k))
            norms.append(tg.nn.utils.clip_grad_norm_(x, 1.0))
            steps.step()
        return [*x, *norms]

    return program


PROGRAMS = {
    "convolution": lambda: convolution(64, 8, 16, 14, 3, 1),
    "convolution of large images": lambda: convolution(3, 5, 16, 90, 3, 1),
    "convolution in steps": lambda: convolution(33, 16, 48, 15, 3, 2),
    "transposed convolution": transposed,
    "LSTM": lambda: recurrent(tg.nn.LSTM, 37),
    "GRU": lambda: recurrent(tg.nn.GRU, 37),
    "LSTM, few sequences": lambda: recurrent(tg.nn.LSTM, 6),
    "layer norm": normed,
    "embedding": lambda: table_of(40),
    "embedding, wide": lambda: table_of(300),
    "bags": lambda: bags(40),
    "attention": attended,
    "products": lambda: products(300, 200, 130),
    "products, few rows": lambda: products(70, 1000, 300),
    "products, few columns": lambda: products(3000, 33, 70),
    "joined": joined,
    "rearranged": rearranged,
    "sums": summed,
    "Adam": lambda: optimized(tg.optim.Adam, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda: optimized(tg.optim.AdamW),
    "SGD": lambda: optimized(tg.optim.SGD, lr=0.1),
    "SGD with momentum": lambda: optimized(tg.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
}
NUMBERS = 1, 2, 3, 5, 16, 64


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compiles the kernels of these families."""
    families = {
        "conv",
        "rnn",
        "matmul",
        "softmax",
        "norm",
        "embedding",
        "attention",
        "join",
        "layout",
        "reduce",
        "optim",
    }
    load_kernels(row for row in table.ROWS if row.kernel.partition(".")[0] in families)


def shared(threads, program):
    """What a program computes with so many threads, and the most ranges that each kernel was divided into."""
    settle(program)
    launches = cores.Launches(thread_pool, threads)
    with cores.in_place(launches):
        results = [t.detach().numpy().copy() for t in program()]
    most: dict = {}
    for name, times in launches.ranges:
        most[name] = max(len(times), most.get(name, 0))
    return results, most


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_number_of_threads_changes_no_bit(name):
    program = PROGRAMS[name]()
    expected, _ = shared(1, program)
    for threads in NUMBERS[1:]:
        found, _ = shared(threads, program)
        for n, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert np.array_equal(a, b), (threads, n, abs(a - b).max())


@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        (lambda: convolution(64, 32, 32, 28, 3, 1), "convolve correlate"),
        (lambda: recurrent(tg.nn.LSTM, 64), "_lstm _lstm_grad"),
        (lambda: recurrent(tg.nn.GRU, 64), "_gru _gru_grad"),
        (lambda: table_of(128), "_embedding _embedding_grad"),
        (normed, "_layer_norm _layer_norm_grad"),
        (lambda: products(7000, 256, 100), "_product _gradients_at_once"),
        (lambda: joined(60), "_cat"),
        (lambda: rearranged(300), "_clone"),
        (lambda: optimized(tg.optim.Adam, 10_000), "_over_all _scale"),
    ],
    ids=["convolution", "LSTM", "GRU", "embedding", "layer norm", "products", "joined", "rearranged", "optimizer"],
)
def test_there_is_work_for_many_threads(program, kernels):
    _, ranges = shared(16, program())
    counts = {name.partition(" ")[0]: count for name, count in ranges.items()}
    assert all(counts[kernel] >= 12 for kernel in kernels.split()), ranges
