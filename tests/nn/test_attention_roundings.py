"""Where attention of two-byte floats is rounded: one rounding elsewhere, and a program decodes other tokens."""

import numpy as np
import pytest

import tensorgrad

pytorch = pytest.importorskip("torch", reason="torch is the oracle of these tests")


def test_attention_of_few_keys_is_rounded_where_torch_rounds():
    """The weights are rounded before they are divided by their sum, if PyTorch's own kernel serves.

    Rounded afterwards, 24 to 36 % of the numbers are others; the order of float32 sums alone changes 2 % of some.
    """
    for here, there in zip(results(tensorgrad), results(pytorch)):
        a, b = (x.float().numpy() for x in (here, there))
        assert (a != b).mean() <= 0.05
        np.testing.assert_allclose(a, b, rtol=2**-7, atol=2**-9)


def results(torch):
    seen = []

    def numbers(*shape, step):
        count = 1
        for n in shape:
            count *= n
        return (torch.arange(count).mul(step).remainder(101).to(torch.float32) / 40 - 1.25).view(shape).bfloat16()

    attention = torch.nn.functional.scaled_dot_product_attention
    for length, source, features in ((5, 5, 16), (5, 5, 64), (1, 5, 64), (3, 12, 32)):
        q = numbers(2, 3, length, features, step=37)
        k = numbers(2, 3, source, features, step=53)
        v = numbers(2, 3, source, features, step=29)
        mask = torch.ones(length, source, dtype=torch.bool).tril(source - length)
        seen += [attention(q, k, v), attention(q, k, v, is_causal=True), attention(q, k, v, attn_mask=mask)]
        seen += [attention(q, k, v, scale=0.3), attention(q[0], k[0], v[0])]
    return seen
