"""Caches of 8 bits: attention on what is stored, beside attention on the numbers that it stands for."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.kernels.compiled import table
from tensorgrad.ops.nn.small_weights import int8_attention
from tensorgrad.quantized import Int8Cache
from tests.support.compare import assert_close
from tests.support.kernels import absent, load_kernels, numpy_only, record_used

F = torch.nn.functional
ROWS = [row for row in table.ROWS if row.kernel.startswith("attention_int8.")]
SIZES = [  # batch, heads of queries and of keys, queries, positions, features of keys and of values
    (1, 2, 2, 1, 64, 64, 64), (2, 6, 2, 1, 37, 48, 40), (1, 8, 2, 3, 131, 16, 16), (2, 4, 4, 2, 8, 32, 5),
    (1, 4, 1, 20, 300, 64, 64), (1, 2, 1, 1, 3, 64, 64), (2, 2, 2, 1, 40, 20, 20), (0, 2, 2, 1, 9, 16, 16),
    (1, 2, 2, 3, 0, 16, 16),
]  # fmt: skip


def drawn(batch, heads, held, queries, length, depth, width):
    """A query, and views of memory with room for more positions: keys, scales, values, scales."""
    random, room = np.random.default_rng(length), length + 5
    query = torch.from_numpy(random.standard_normal((batch, heads, queries, depth)).astype(np.float32))
    stored = [
        torch.from_numpy(random.integers(-128, 128, (batch, held, room, n)).astype(np.int8)) for n in (depth, width)
    ]
    scales = [torch.from_numpy(random.random((batch, held, room)).astype(np.float32) / 50) for _ in range(2)]
    return query, *[t[:, :, :length] for t in (stored[0], scales[0], stored[1], scales[1])]


def expected(query, key, key_scales, value, value_scales, mask, scale):
    query, key, value = query.double(), key.double(), value.double()
    key, value = key * key_scales.double().unsqueeze(-1), value * value_scales.double().unsqueeze(-1)
    if mask is not None and mask.dtype is not torch.bool:
        mask = mask.double()
    return F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)


def masks(size):
    batch, heads, _, queries, length, *_ = size
    random = np.random.default_rng(1)
    yield None
    yield torch.from_numpy(random.standard_normal((length,)).astype(np.float32))
    yield torch.from_numpy(random.random((batch, 1, queries, length)) < 0.5)
    hidden = random.standard_normal((batch, heads, queries, length)).astype(np.float32)
    hidden[:, 0] = -np.inf
    yield torch.from_numpy(hidden)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention_on_integers(size):
    given = drawn(*size)
    for mask in masks(size):
        wanted = expected(*given, mask, 0.3).numpy()
        for only in (False, True):
            if only:
                with numpy_only():
                    found = int8_attention(*given, mask, 0.3)
            else:
                found = int8_attention(*given, mask, 0.3)
            assert found.dtype is torch.float32
            assert_close(found.double().numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_queries_of_other_dtypes(dtype):
    given = drawn(1, 4, 2, 2, 33, 32, 32)
    query = given[0].to(dtype)
    found = int8_attention(query, *given[1:], None, 0.3)
    assert found.dtype is dtype
    close = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-9}[dtype]
    wanted = expected(query, *given[1:], None, 0.3)
    assert_close(found.double().numpy(), wanted.numpy(), atol=close)


def test_gradients_of_queries():
    query, *stored = drawn(1, 4, 2, 2, 11, 16, 16)
    query = query.double().requires_grad_()
    torch.autograd.gradcheck(lambda q: int8_attention(q, *stored, None, 0.3), query)
    torch.autograd.gradgradcheck(lambda q: int8_attention(q, *stored, None, 0.3), query)


@pytest.mark.skipif(bool(absent()), reason=absent())
def test_which_sizes_the_compiled_kernel_computes(monkeypatch):
    load_kernels(ROWS)
    used = record_used(monkeypatch, ROWS)
    for size in SIZES[:4]:
        int8_attention(*drawn(*size), None, 0.3)
        assert used == {"int8_attention"}
        used.clear()
    for size in SIZES[5:]:  # too short, no multiple of 16 features, empty
        int8_attention(*drawn(*size), None, 0.3)
    assert not used


def test_sizes_that_do_not_fit():
    query, key, key_scales, value, value_scales = drawn(1, 4, 2, 1, 9, 16, 16)
    for given in (
        (query, key, key_scales, value[:, :, 1:], value_scales), (query[:, :3], key, key_scales, value, value_scales),
        (query[..., 1:], key, key_scales, value, value_scales), (query[0], key, key_scales, value, value_scales),
        (query, key, key_scales[:, 1:], value, value_scales), (query, key.int(), key_scales, value, value_scales),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="int8_attention"):
            int8_attention(*given)


# --- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads, held", [(2, 2), (6, 2)])
def test_token_by_token_as_all_at_once(heads, held):
    torch.manual_seed(0)
    query = torch.randn(2, heads, 40, 32)
    key, value = torch.randn(2, 2, held, 40, 32)
    key[0, 0, 3] = 0
    cache, whole, found = Int8Cache(capacity=3), Int8Cache(), []
    for first, last in [(0, 20), (20, 21), (21, 22), (22, 25), (25, 40)]:
        cache.append(key[:, :, first:last], value[:, :, first:last])
        found.append(cache.attend(query[:, :, first:last]))
    whole.append(key, value)
    assert len(cache) == len(whole) == 40 and cache.nbytes == whole.nbytes == 2 * 2 * held * 40 * (32 + 4)
    assert all(torch.equal(a, b) for a, b in zip(cache.dequantize(), whole.dequantize()))
    assert all((a - b).abs().max() <= b.abs().max() / 250 for a, b in zip(cache.dequantize(), (key, value)))
    exact = F.scaled_dot_product_attention(query, *cache.dequantize(), is_causal=True, enable_gqa=True)
    assert_close(torch.cat(found, 2).numpy(), exact.numpy(), atol=1e-5)
    assert_close(whole.attend(query).numpy(), exact.numpy(), atol=1e-5)
    rounded = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    assert (exact - rounded).abs().max() < 0.03


def test_crop_and_reorder():
    torch.manual_seed(0)
    key, value = torch.randn(2, 3, 2, 12, 16)
    cache = Int8Cache()
    cache.append(key, value)
    before = cache.dequantize()
    cache.crop(7)
    cache.reorder(torch.tensor([2, 0, 0]))
    for found, kept in zip(cache.dequantize(), before):
        assert torch.equal(found, kept[[2, 0, 0], :, :7])
    cache.append(key[:, :, 7:], value[:, :, 7:])
    assert len(cache) == 12
    with pytest.raises(ValueError, match="crop"):
        cache.crop(13)


def test_wrong_calls_of_the_cache():
    cache = Int8Cache()
    with pytest.raises(ValueError, match="capacity"):
        Int8Cache(0)
    with pytest.raises(ValueError, match="attend"):
        cache.attend(torch.ones(1, 2, 1, 16))
    with pytest.raises(ValueError, match="append"):
        cache.append(torch.ones(1, 2, 1, 16), torch.ones(1, 2, 2, 16))
    cache.append(torch.ones(1, 2, 1, 16), torch.ones(1, 2, 1, 16))
    for key in (torch.ones(2, 2, 1, 16), torch.ones(1, 1, 1, 16), torch.ones(1, 2, 1, 8)):
        with pytest.raises(ValueError, match="stored"):
            cache.append(key, key)
    with pytest.raises(ValueError, match="attend"):
        cache.attend(torch.ones(1, 2, 2, 16))
