"""What a node saves depends on its op and its inputs, not on which kernel ran: checkpoints run an op twice, perhaps by
two of them, and compare what it saved. Every row with a `cache`, by NumPy's and by compiled kernels."""

import contextlib

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad.kernels.compiled import table
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.utils.checkpoint import checkpoint
from tests.support.kernels import absent, numpy_only, record_used, used_for_any_size

F = tg.nn.functional


def wave(*shape, dtype=tg.float32, step=0.7):
    count = 1
    for n in shape:
        count *= n
    return (tg.arange(float(count)) * step).sin().reshape(shape).to(dtype).requires_grad_()


def attend(x, **options):
    return F.scaled_dot_product_attention(x, x.flip(-2), x * 2, **options)


def of_heads(length, width=12, **options):
    return lambda dtype: attend(wave(3, 4, length, width, dtype=dtype), **options)


def recurrent(kind, **options):
    def call(dtype):
        net = getattr(tg.nn, kind)(8, 6, **options).to(dtype)
        return net(wave(5, 7, 8, dtype=dtype))[0]

    return call


targets = tg.arange(24) % 9
mask = tg.arange(81).reshape(9, 9) % 4 > 0
CALLS = {  # row -> calls of it
    "attention": [
        of_heads(9), of_heads(1), of_heads(9, is_causal=True), of_heads(9, attn_mask=mask), of_heads(33),
        of_heads(9, attn_mask=mask.float()), of_heads(9, attn_mask=(mask & False)), of_heads(9, width=130),
        of_heads(9, attn_mask=wave(9, 9)), of_heads(9, dropout_p=0.3), of_heads(9, attn_mask=mask[:, :1]),
        lambda dtype: attend(wave(9, 12, dtype=dtype)), lambda dtype: attend(wave(2, 2, 3, 9, 12, dtype=dtype)),
        lambda dtype: attend(wave(9, 4, 3, 12, dtype=dtype).transpose(0, 2)),
        lambda dtype: F.scaled_dot_product_attention(
            wave(3, 1, 9, 12, dtype=dtype), wave(1, 4, 7, 12, dtype=dtype), wave(3, 4, 7, 5, dtype=dtype)),
    ],
    "layer_norm": [
        lambda dtype: F.layer_norm(wave(6, 5, 40, dtype=dtype), (40,), wave(40, dtype=dtype), wave(40, dtype=dtype)),
        lambda dtype: F.layer_norm(wave(6, 5, 40, dtype=dtype), (5, 40)),
        lambda dtype: F.layer_norm(wave(40, 6, dtype=dtype).t(), (40,)),
    ],
    "rms_norm": [
        lambda dtype: F.rms_norm(wave(6, 5, 40, dtype=dtype), (40,), wave(40, dtype=dtype)),
        lambda dtype: F.rms_norm(wave(6, 5, 40, dtype=dtype), (5, 40)),
    ],
    "group_norm": [
        lambda dtype: F.group_norm(wave(3, 6, 5, 7, dtype=dtype), 2, wave(6, dtype=dtype), wave(6, dtype=dtype)),
        lambda dtype: F.group_norm(wave(3, 6, 50, dtype=dtype), 6),
        lambda dtype: F.group_norm(wave(3, 6, 5, 7, dtype=dtype).contiguous(memory_format=tg.channels_last), 2),
    ],
    "batch_norm": [
        lambda dtype: F.batch_norm(wave(3, 6, 5, 7, dtype=dtype), None, None, wave(6, dtype=dtype), training=True),
        lambda dtype: F.batch_norm(wave(30, 6, dtype=dtype), None, None, training=True),
        lambda dtype: F.batch_norm(wave(3, 6, 5, 7, dtype=dtype), tg.zeros(6, dtype=dtype), tg.ones(6, dtype=dtype)),
        lambda dtype: F.batch_norm(
            wave(3, 6, 5, 7, dtype=dtype).contiguous(memory_format=tg.channels_last), None, None, training=True),
    ],
    "cross_entropy": [
        lambda dtype: F.cross_entropy(wave(24, 90, dtype=dtype), targets),
        lambda dtype: F.cross_entropy(wave(24, 90, dtype=dtype), targets, reduction="none", label_smoothing=0.1),
        lambda dtype: F.cross_entropy(wave(24, 90, 3, dtype=dtype), targets[:, None].expand(24, 3), reduction="sum"),
        lambda dtype: F.cross_entropy(wave(24, 90, dtype=dtype), targets, wave(90, dtype=dtype).detach() + 2),
    ],
    "lstm_layer": [recurrent("LSTM"), recurrent("LSTM", proj_size=3), recurrent("LSTM", bidirectional=True)],
    "gru_layer": [recurrent("GRU"), recurrent("GRU", batch_first=True, bias=False)],
}  # fmt: skip


def saved(call, dtype) -> list:
    """Shapes and dtypes of what a call saves."""
    seen = []
    with tg.autograd.graph.saved_tensors_hooks(lambda t: seen.append((tuple(t.shape), t.dtype)) or t, lambda t: t):
        call(dtype)
    return seen


@pytest.fixture(scope="module")
def compiled():
    if absent():
        pytest.skip(f"compiled kernels: {absent()}")
    rows = [row for row in table.ROWS if row.op.removesuffix(".backward") in CALLS]
    with used_for_any_size(rows):
        yield rows


def test_every_row_with_a_cache_is_here():
    assert {row.name for row in OPS.values() if row.cache} == {*CALLS}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_kernels_save_the_same(name, dtype, compiled, monkeypatch):
    used = record_used(monkeypatch, compiled)
    for nr, call in enumerate(CALLS[name]):
        tg.manual_seed(0)
        fast = saved(call, getattr(tg, dtype))
        tg.manual_seed(0)
        with numpy_only():
            assert saved(call, getattr(tg, dtype)) == fast, (name, nr)
    if dtype == "float32":
        assert used == {row.op for row in compiled} & {name}  # the compiled kernel did run


@pytest.mark.parametrize("name", CALLS)
def test_kernels_return_what_the_row_states(name, monkeypatch):
    """The row's `shape` states the shapes and dtypes of its results, and of what is kept beside them."""
    row, seen = OPS[name], []
    for kernels in (t for t in (row.compiled.kernels, row.compiled.kernels.large) if t is not None):

        def kernel(*given, run=kernels[np.ndarray]):
            made = run(*given)
            stated = [(tuple(shape), np.dtype(dtype)) for shape, dtype in row.shape(*given)]
            seen.append(([(a.shape, a.dtype) for a in made], stated))
            return made

        monkeypatch.setitem(kernels, np.ndarray, kernel)
    for call in CALLS[name]:
        call(tg.float32)
    assert seen
    for found, stated in seen:
        assert found == stated


@pytest.mark.parametrize("first", ["compiled", "numpy"])
def test_a_checkpoint_over_attention_when_its_kernel_arrives(first, compiled):
    """Its first run is one before the kernel is loaded, and the second one after, or the other way round."""
    x = wave(3, 4, 9, 12)
    expected = tg.autograd.grad(attend(x).square().sum(), x)[0]
    before, after = (numpy_only, contextlib.nullcontext) if first == "numpy" else (contextlib.nullcontext, numpy_only)
    with before():
        out = checkpoint(attend, x, use_reentrant=False)
    with after():
        out.square().sum().backward()
    assert tg.allclose(x.grad, expected, rtol=1e-4, atol=1e-5)
