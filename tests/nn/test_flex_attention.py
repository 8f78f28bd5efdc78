"""`flex_attention` and its masks, against PyTorch's (which computes all scores, too, when it is not compiled)."""

import warnings
from importlib import import_module

import pytest

import tensorgrad
from tests.support.alike import alike

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("torch.nn.attention.flex_attention")


def flex(l):
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    return import_module(f"{l.__name__}.nn.attention.flex_attention")


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q - k).abs() <= 3


@alike
def test_masks(l):
    f = flex(l)
    seen = []
    for mask, shape, block in [
        (causal, (None, None, 300, 300), 128), (near, (2, 3, 200, 100), (64, 32)),
        (f.noop_mask, (None, None, 10, 10), 4),
        (f.and_masks(causal, near), (1, 2, 65, 130), 32), (f.or_masks(causal, near), (None, None, 64, 64), 16),
        (lambda b, h, q, k: (q >= k) & (h > 0), (1, 2, 8, 8), 4),
    ]:  # fmt: skip
        made = f.create_block_mask(mask, *shape, device="cpu", BLOCK_SIZE=block)
        seen += [made.shape, made.seq_lengths, made.BLOCK_SIZE, made.sparsity(), made.numel(), made.to_dense()]
        for name in ("kv", "full_kv", "q", "full_q"):
            count, order = getattr(made, f"{name}_num_blocks"), getattr(made, f"{name}_indices")
            seen += [count, order.sort(-1)[0], str(order.dtype)]
        again = f.BlockMask.from_kv_blocks(
            made.kv_num_blocks, made.kv_indices, made.full_kv_num_blocks, made.full_kv_indices, block
        )
        seen += [again.to_dense(), again.shape, made[0].shape, made.to("cpu").shape]
    seen.append(f.create_mask(causal, 2, None, 3, 4, device="cpu"))
    seen.append(f.create_mask(lambda s, b, h, q, k: l.where(q >= k, s, -float("inf")), 1, 1, 3, 3, device="cpu"))
    return seen


def scores(l):
    bias = l.tensor([0.1, -0.2, 0.3, 0.4])
    table = l.arange(400.0).reshape(20, 20) / 100
    yield None
    yield lambda s, b, h, q, k: s * 2
    yield lambda s, b, h, q, k: s + bias[h] * (q - k)
    yield lambda s, b, h, q, k: s + table[q, k] * b
    yield lambda s, b, h, q, k: l.where(q >= k, s, -float("inf"))
    yield lambda s, b, h, q, k: 5 * l.tanh(s / 5)


@pytest.mark.slow
@alike(tolerance=1e-4)
def test_scores_and_masks(l):
    f = flex(l)
    q, k, v = (l.randn(2, 4, 20, 8) for _ in range(3))
    masks = [None, causal, near, lambda b, h, i, j: i < 5, lambda b, h, i, j: (j < 3) | (h == 1)]
    seen = []
    for change in scores(l):
        seen.append(f.flex_attention(q, k, v, score_mod=change))
        seen += f.flex_attention(q, k, v, score_mod=change, return_lse=True)
    for mask in masks[1:]:
        made = f.create_block_mask(mask, 2, 4, 20, 20, device="cpu")
        seen += f.flex_attention(q, k, v, block_mask=made, scale=0.3, return_lse=True)
    half, other = k[:, :2], v[:, :2, :, :3]
    seen.append(f.flex_attention(q, half, other, enable_gqa=True))
    seen.append(f.flex_attention(q[:, :, :7], k, v, return_aux=f.AuxRequest(lse=True))[1].lse)
    seen.append(str(f.flex_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).dtype))
    for wrong in (lambda: f.flex_attention(q[0], k, v), lambda: f.flex_attention(q, half, other)):
        try:
            wrong()
        except (NotImplementedError, ValueError) as error:
            seen.append(str(error))
    return seen


def test_a_mask_for_other_lengths():
    f = flex(tensorgrad)
    q = tensorgrad.ones(1, 1, 20, 4)
    with pytest.raises(ValueError, match=r"block_mask was created for block_mask.shape=\(1, 1, 300, 300\)"):
        f.flex_attention(q, q, q, block_mask=f.create_block_mask(causal, None, None, 300, 300))


def test_blocks_count_without_a_mask():
    """A mask made of blocks alone, which PyTorch's uncompiled function ignores."""
    f = flex(tensorgrad)
    q, k, v = (tensorgrad.randn(1, 1, 4, 2) for _ in range(3))
    one = tensorgrad.ones(1, 1, 2, dtype=tensorgrad.int32)
    order = tensorgrad.tensor([[[[0, 1], [1, 0]]]], dtype=tensorgrad.int32)
    blocks = f.BlockMask.from_kv_blocks(one, order, BLOCK_SIZE=2)
    found = f.flex_attention(q, k, v, block_mask=blocks)
    attention = tensorgrad.nn.functional.scaled_dot_product_attention
    for part in (slice(0, 2), slice(2, 4)):
        assert tensorgrad.allclose(found[:, :, part], attention(q[:, :, part], k[:, :, part], v[:, :, part]), atol=1e-6)


def test_gradients():
    """PyTorch has none on the CPU; `scaled_dot_product_attention` has."""
    f = flex(tensorgrad)
    given = [tensorgrad.randn(1, 2, 6, 4, dtype=tensorgrad.float64, requires_grad=True) for _ in range(3)]
    slope = tensorgrad.randn(2, dtype=tensorgrad.float64, requires_grad=True)
    mask = f.create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=2)

    def run(q, k, v, slope):
        return f.flex_attention(q, k, v, lambda s, b, h, i, j: s + slope[h] * (i - j), mask)

    assert tensorgrad.autograd.gradcheck(run, (*given, slope))
    ours = tensorgrad.autograd.grad(f.flex_attention(*given, block_mask=mask).sin().sum(), given)
    same = tensorgrad.nn.functional.scaled_dot_product_attention(*given, is_causal=True)
    for a, b in zip(ours, tensorgrad.autograd.grad(same.sin().sum(), given), strict=True):
        assert tensorgrad.allclose(a, b)
