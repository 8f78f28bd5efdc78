"""Attention among sequences that lie one after another; PyTorch has it on GPUs only: each must be as if alone."""

import pytest

import tensorgrad as tg
from tensorgrad.nn.attention.varlen import AuxRequest, varlen_attn

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")

LENGTHS, KEYS = (3, 1, 5, 2), (3, 4, 5, 2)


def begins(lengths):
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def made(heads, shared):
    torch.manual_seed(0)
    return torch.randn(sum(LENGTHS), heads, 4), torch.randn(sum(KEYS), shared, 4), torch.randn(sum(KEYS), shared, 4)


def alone(q, k, v, window, used, **options):
    """Each sequence by itself, with a mask that says which keys a query sees, pair by pair."""
    results = []
    for i, (first, begin) in enumerate(zip(begins(LENGTHS)[:-1], begins(KEYS)[:-1])):
        n, m = LENGTHS[i], used[i]
        before, after = (10 if side < 0 else side for side in window)
        seen = torch.tensor([[-before <= place - (row + m - n) <= after for place in range(m)] for row in range(n)])
        parts = (q[first : first + n], k[begin : begin + m], v[begin : begin + m])
        a, b, c = (part.transpose(0, 1) for part in parts)
        results.append(torch.nn.functional.scaled_dot_product_attention(a, b, c, seen, **options).transpose(0, 1))
    return torch.cat(results)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (2, 1), (0, -1)])
@pytest.mark.parametrize("heads, shared", [(2, 2), (4, 2)])
@pytest.mark.parametrize("used", [KEYS, (3, 2, 5, 2)])
def test_each_sequence_is_as_if_it_were_alone(window, heads, shared, used):
    expected = [x.requires_grad_() for x in made(heads, shared)]
    ours = [tg.tensor(x.tolist(), requires_grad=True) for x in expected]
    options = {"scale": 0.3, "enable_gqa": heads != shared}
    right = alone(*expected, window, used, **options)
    starts = [tg.tensor(begins(lengths), dtype=tg.int32) for lengths in (LENGTHS, KEYS)]
    counted = None if used == KEYS else tg.tensor(used, dtype=tg.int32)
    found = varlen_attn(*ours, *starts, 5, 5, window_size=window, seqused_k=counted, **options)
    torch.testing.assert_close(torch.tensor(found.tolist()), right)
    (found * found).sum().backward()
    (right * right).sum().backward()
    for mine, other in zip(ours, expected):
        torch.testing.assert_close(torch.tensor(mine.grad.tolist()), other.grad, rtol=1e-4, atol=1e-5)


def test_what_is_refused():
    x, two = tg.ones(3, 2, 4), tg.tensor([0, 3])
    for options, kind, message in (
        ({"return_aux": AuxRequest(lse=True)}, NotImplementedError, "logarithms of sums"),
        ({"block_table": two}, NotImplementedError, "keys in pages"),
        ({}, ValueError, "same number of heads but got Hq=2 and Hkv=1"),
    ):
        with pytest.raises(kind, match=message):
            varlen_attn(x, x[:, :1], x[:, :1], two, two, 3, 3, **options)
    with pytest.raises(ValueError, match="multiple of kv heads"):
        varlen_attn(tg.ones(3, 3, 4), x, x, two, two, 3, 3, enable_gqa=True)
