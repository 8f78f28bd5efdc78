"""Random numbers on the device: PyTorch's CUDA numbers from PyTorch's seeds, as far as they are known without a GPU.

What PyTorch prints on a GPU for a few seeds is public. Beyond that the numbers are computed here once more, from Philox
and the order in which PyTorch's threads take their words. Where torch has a GPU itself, it is asked.
"""

import copy
import math
import pickle

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.random.philox import PhiloxGenerator, philox
from tests.cuda.conftest import MODE

oracle = pytest.importorskip("torch")
cupy = pytest.importorskip("cupy")
kernels = pytest.importorskip("tensorgrad.kernels.cuda.random")
emulated = pytest.mark.skipif(MODE != "emulator", reason="gives the emulated GPU another size")

UNIFORM = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096]
UNIFORM_THEN = [0.9722, 0.7910, 0.4690, 0.3300, 0.3345, 0.3783, 0.7640, 0.6405, 0.1103, 0.3594]
NORMAL = [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284, -1.0745, -0.3631, -1.6711, 2.2655]
DOUBLE_NORMAL = [-0.3104, -0.0343, 0.1756, -2.2804, 0.5039, 0.5596, -0.0750, 0.9691]
FLOATING = ("float32", "float64", "float16", "bfloat16")


def host(tensor):
    tensor = tensor.detach().cpu()
    return tensor.float().numpy() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.numpy()


@pytest.fixture
def small(monkeypatch):
    """A GPU that runs two blocks at once, so that threads come round to draw again."""
    monkeypatch.setattr(kernels, "_most_blocks", lambda device: 2)


def drawn(n, seed, offset, each, blocks=2):
    """Philox's words for n elements in PyTorch's order, and the slot that each takes of what its thread draws."""
    threads = min(blocks, -(-n // 256)) * 256
    i = np.arange(n)
    return philox(offset // 4 + i // threads // each, i % threads, seed), i // threads % each


def uniforms(n, seed, offset, double=False, blocks=2):
    words, slot = drawn(n, seed, offset, 2 if double else 4, blocks)
    if not double:
        return np.choose(slot, words).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
    low, high = (np.choose(slot, pair).astype(np.uint64) for pair in (words[::2], words[1::2]))
    return (low ^ high << np.uint64(21)) * 2.0**-53 + 2.0**-54


def normals(n, seed, offset, double=False, blocks=2):
    words, slot = drawn(n, seed, offset, 2 if double else 4, blocks)
    if double:
        wide = [word.astype(np.uint64) for word in words]
        u = (wide[0] ^ wide[1] << np.uint64(21)) * 2.0**-53 + 2.0**-54
        angle = ((wide[2] ^ wide[3] << np.uint64(21)) * 2.0**-52 + 2.0**-53) * math.pi
        return np.sqrt(-2 * np.log(u)) * np.where(slot, np.cos(angle), np.sin(angle))
    u, v = (np.where(slot < 2, *pair) * 2.0**-32 + 2.0**-33 for pair in (words[::2], words[1::2]))
    return np.sqrt(-2 * np.log(u)) * np.where(slot % 2, np.cos(2 * math.pi * v), np.sin(2 * math.pi * v))


# --- what is known ---------------------------------------------------------------------------------------------------


def test_the_numbers_that_pytorch_prints():
    torch.manual_seed(0)
    np.testing.assert_allclose(host(torch.rand(10, device="cuda")), UNIFORM, atol=5.1e-5)
    np.testing.assert_allclose(host(torch.rand(10, device="cuda")), UNIFORM_THEN, atol=5.1e-5)
    torch.manual_seed(0)
    np.testing.assert_allclose(host(torch.randn(3, 4, device="cuda").flatten()), NORMAL, atol=5.1e-5)
    torch.manual_seed(42)
    np.testing.assert_allclose(host(torch.randn(3, device="cuda")), [0.1940, 2.1614, -0.1721], atol=5.1e-5)
    torch.manual_seed(0)
    np.testing.assert_allclose(host(torch.randn(8, device="cuda", dtype=torch.float64)), DOUBLE_NORMAL, atol=5.1e-5)
    torch.manual_seed(0)
    assert torch.randint(0, 100, (8,), device="cuda").tolist() == [41, 97, 91, 72, 53, 4, 3, 33]


def test_philox_agrees_with_its_authors():
    """The known answers that Random123 is published with."""
    ones = 2**64 - 1
    assert [int(w) for w in philox(0, 0, 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(w) for w in philox(ones, ones, ones)] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    place = (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822)
    assert [int(w) for w in philox(*place)] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.skipif(not oracle.cuda.is_available(), reason="torch has no GPU here")
@pytest.mark.parametrize("n", [1, 5, 1000, 2_000_001])
def test_torch_on_the_same_gpu_agrees(n):
    calls = [
        lambda t: t.rand(n, device="cuda"), lambda t: t.rand(n, device="cuda", dtype=t.float64),
        lambda t: t.randn(n, device="cuda"), lambda t: t.randn(n, device="cuda", dtype=t.float16),
        lambda t: t.randint(0, 10, (n,), device="cuda"), lambda t: t.randint(0, 2**40, (n,), device="cuda"),
        lambda t: t.empty(n, device="cuda").exponential_(), lambda t: t.empty(n, device="cuda").bernoulli_(0.3),
        lambda t: t.bernoulli(t.full((n,), 0.3, device="cuda")), lambda t: t.randperm(n, device="cuda"),
        lambda t: t.nn.functional.dropout(t.ones(n, device="cuda")),
        lambda t: t.nn.functional.dropout(t.ones(n * 8, device="cuda", dtype=t.float16)),
    ]  # fmt: skip
    for library in (torch, oracle):
        library.manual_seed(3)
    for call in calls:
        ours, theirs = call(torch).cpu(), call(oracle).cpu()
        np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=1e-3, atol=1e-6)
    assert torch.cuda.get_rng_state().tolist() == oracle.cuda.get_rng_state().tolist()


# --- samplers --------------------------------------------------------------------------------------------------------


@emulated
@pytest.mark.parametrize("n", [1, 513, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniforms_and_normals_in_the_order_of_pytorchs_threads(small, n, dtype):
    g = torch.Generator("cuda").manual_seed(2**40 + 7)
    options = {"generator": g, "device": "cuda", "dtype": getattr(torch, dtype)}
    double = dtype == "float64"
    np.testing.assert_array_equal(host(torch.rand(n, **options)), uniforms(n, 2**40 + 7, 0, double) % 1.0)
    threads = min(2, -(-n // 256)) * 256
    after = ((n - 1) // (threads * (2 if double else 4)) + 1) * 4
    assert g.get_offset() == after
    expected = normals(n, 2**40 + 7, after, double)
    tolerance = 1e-12 if double else 2e-6
    np.testing.assert_allclose(host(torch.randn(n, **options)), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATING)
def test_uniforms_stay_below_their_end(dtype):
    x = torch.empty(20_000, device="cuda", dtype=getattr(torch, dtype))
    torch.manual_seed(1)
    values = host(x.uniform_(-2, 3))
    assert values.min() >= -2 and values.max() < 3 and abs(values.mean() - 0.5) < 0.05


@pytest.mark.parametrize("dtype", FLOATING)
def test_moments(dtype):
    torch.manual_seed(2)
    x = torch.empty(20_000, device="cuda", dtype=getattr(torch, dtype))
    normal = host(x.normal_(3, 2)).astype(np.float64)
    assert abs(normal.mean() - 3) < 0.06 and abs(normal.std() - 2) < 0.04
    waits = host(x.exponential_(2)).astype(np.float64)
    assert waits.min() > 0 and abs(waits.mean() - 0.5) < 0.02 and abs(waits.std() - 0.5) < 0.03
    tosses = host(x.geometric_(0.25)).astype(np.float64)
    assert tosses.min() == 1 and abs(tosses.mean() - 4) < 0.1
    assert abs(np.median(host(x.cauchy_(1.0, 2.0)).astype(np.float64)) - 1) < 0.15
    assert abs(np.median(np.log(host(x.log_normal_(0.5, 0.25)).astype(np.float64))) - 0.5) < 0.02
    assert abs(host(x.bernoulli_(0.25)).mean() - 0.25) < 0.02


def test_complex_numbers_share_the_variance():
    torch.manual_seed(0)
    z = torch.randn(10_000, device="cuda", dtype=torch.complex64).cpu().numpy()
    assert abs((abs(z) ** 2).mean() - 1) < 0.05
    assert torch.rand(3, device="cuda", dtype=torch.complex64).dtype is torch.complex64


@emulated
@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "float32", "float16", "bfloat16"])
def test_integers(small, dtype):
    g = torch.Generator("cuda").manual_seed(5)
    x = torch.randint(
        -7 if dtype != "uint8" else 0, 100, (3000,), generator=g, device="cuda", dtype=getattr(torch, dtype)
    )
    words, slot = drawn(3000, 5, 0, 4)
    low = 0 if dtype == "uint8" else -7
    expected = oracle.tensor((np.choose(slot, words) % (100 - low)).astype(np.int64) + low).to(getattr(oracle, dtype))
    np.testing.assert_array_equal(host(x), expected.double().numpy())


@emulated
def test_wide_integers_take_two_words(small):
    g = torch.Generator("cuda").manual_seed(5)
    x = torch.randint(-5, 2**40, (2000,), generator=g, device="cuda")
    words, slot = drawn(2000, 5, 0, 2)
    high, low = (np.choose(slot, pair).astype(np.uint64) for pair in (words[::2], words[1::2]))
    np.testing.assert_array_equal(x.cpu().numpy(), ((high << np.uint64(32) | low) % (2**40 + 5)).astype(np.int64) - 5)


def test_integers_over_all_of_a_type():
    torch.manual_seed(0)
    for dtype, least, most in [("int8", 0, 127), ("uint8", 0, 255), ("bool", 0, 1), ("bfloat16", 0, 256)]:
        values = host(torch.empty(4000, device="cuda", dtype=getattr(torch, dtype)).random_())
        assert values.min() == least and values.max() == most
    full = torch.empty(1000, device="cuda", dtype=torch.int64).random_(-(2**63), None).cpu().numpy()
    assert full.min() < -(2**62) and full.max() > 2**62
    assert torch.randint(3, (5,), device="cuda", dtype=torch.uint16).dtype is torch.uint16


def reference_permutation(n, bits, seed):
    words, slot = drawn(n, seed, 0, 2, 1056)
    high, low = (np.choose(slot, pair).astype(np.uint64) for pair in (words[::2], words[1::2]))
    wide = high << np.uint64(32) | low
    keys = (wide % np.uint64(2**32 - 1)).astype(np.int64) - 2**31
    masked = keys & (2**bits - 1)
    order = np.argsort(masked, kind="stable")
    after = ((n - 1) // (min(1056, -(-n // 256)) * 512) + 1) * 4
    keys, start = masked[order], 0
    while start < n:
        size = int((keys == keys[start]).sum())
        stream = [w for block in range(-(-size // 4)) for w in philox(after // 4 + block, start, seed)]
        for used, i in enumerate(range(size - 1, 0, -1)):
            j = int(stream[used]) % (i + 1)
            order[start + i], order[start + j] = order[start + j], order[start + i]
        start += size
    return order


@emulated
@pytest.mark.parametrize("bits", [None, 3, 5])
def test_permutations(monkeypatch, bits):
    """With fewer bits than chosen keys are alike more often, so that runs of them are shuffled."""
    n, seed = 40, 11
    if bits is None:
        bits = kernels._bits_of_keys(n)
    monkeypatch.setattr(kernels, "_bits_of_keys", lambda n: bits)
    g = torch.Generator("cuda").manual_seed(seed)
    found = torch.randperm(n, generator=g, device="cuda")
    assert found.dtype is torch.int64 and g.get_offset() == 4 + n
    np.testing.assert_array_equal(found.cpu().numpy(), reference_permutation(n, bits, seed))


def test_permutations_of_every_size():
    for n in (0, 1, 2, 1000, 40_000):
        found = torch.randperm(n, device="cuda", dtype=torch.int32)
        assert found.dtype is torch.int32 and found.device.type == "cuda"
        np.testing.assert_array_equal(np.sort(found.cpu().numpy()), np.arange(n))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_bernoulli_of_many_probabilities(dtype):
    n = 3001
    p = torch.tensor(np.random.default_rng(0).random(n)).to(getattr(torch, dtype))
    g = torch.Generator("cuda").manual_seed(9)
    found = torch.bernoulli(p.to("cuda"), generator=g)
    assert found.dtype is p.dtype and g.get_offset() == 12
    word = np.choose(np.arange(n) % 4, philox(0, np.arange(n) // 4, 9)).astype(np.float32)
    np.testing.assert_array_equal(host(found), word * np.float32(2**-32) + np.float32(2**-33) <= host(p))
    mask = torch.zeros(4, n, dtype=torch.bool, device="cuda").bernoulli_(p.to("cuda"))
    assert mask.dtype is torch.bool and abs(host(mask).mean() - 0.5) < 0.05


def test_normals_around_tensors():
    torch.manual_seed(0)
    mean = torch.arange(4.0, device="cuda") * 100
    x = torch.normal(mean.expand(5000, 4), torch.tensor([1.0, 2.0, 0.0, 4.0], device="cuda"))
    np.testing.assert_allclose(host(x).mean(0), [0, 100, 200, 300], atol=0.2)
    np.testing.assert_allclose(host(x).std(0), [1, 2, 0, 4], rtol=0.05)
    assert torch.normal(mean, 0.0).tolist() == mean.tolist()
    assert abs(host(torch.normal(2.0, torch.ones(5000, device="cuda", dtype=torch.bfloat16))).mean() - 2) < 0.1


def test_draws_by_weights():
    torch.manual_seed(0)
    weights = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 2.0]], device="cuda")
    many = host(torch.multinomial(weights, 4000, replacement=True))
    shares = np.stack([np.bincount(row, minlength=3) / 4000 for row in many])
    np.testing.assert_allclose(shares, [[0, 0.75, 0.25], [0.5, 0, 0.5]], atol=0.03)
    assert {tuple(sorted(row)) for row in host(torch.multinomial(weights, 2)).tolist()} == {(1, 2), (0, 2)}
    once = host(torch.multinomial(weights.expand(2000, 2, 3).reshape(4000, 3), 1))[::2, 0]
    assert set(once.tolist()) == {1, 2} and abs((once == 1).mean() - 0.75) < 0.04
    g = torch.Generator("cuda").manual_seed(4)
    found = torch.multinomial(torch.tensor([0.25, 0.25, 0.5], device="cuda"), 300, replacement=True, generator=g)
    u = philox(0, np.arange(300), 4)[0].astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
    np.testing.assert_array_equal(host(found), np.searchsorted([0.25, 0.5, 1.0], u))


def test_variates_that_are_accepted_or_rejected():
    """Mean and variance in each of the ways that parameters lead to."""
    torch.manual_seed(0)
    n = 20_000

    def check(drawn, mean, variance):
        values = drawn.double().cpu().numpy().T
        assert drawn.device.type == "cuda" and np.isfinite(values).all()
        for row, m, v in zip(values, mean, variance, strict=True):
            assert abs(row.mean() - m) < 5 * math.sqrt(v / n) + 1e-9
            assert abs(row.var() - v) < 0.08 * v + 1e-9

    rates = [0.0, 0.5, 4.0, 30.0, 1000.0]
    check(torch.poisson(torch.tensor(rates, device="cuda").expand(n, 5)), rates, rates)
    counts, p = np.array([10.0, 40, 100, 1000, 7, 7, 0, 30]), np.array([0.25, 0.75, 0.5, 0.97, 0.0, 1.0, 0.5, 0.02])
    heads = torch.binomial(torch.tensor(counts, device="cuda").expand(n, 8), torch.tensor(p, device="cuda"))
    check(heads, counts * p, counts * p * (1 - p))
    alphas = [0.3, 1.0, 2.5, 50.0]
    for dtype in (torch.float32, torch.float64):
        check(torch._standard_gamma(torch.tensor(alphas, device="cuda", dtype=dtype).expand(n, 4)), alphas, alphas)
    weights = np.array([0.5, 1.0, 3.5])
    points = torch._sample_dirichlet(torch.tensor(weights, device="cuda").expand(n, 3))
    assert bool(torch.isclose(points.sum(-1), torch.ones(n, device="cuda", dtype=torch.float64)).all())
    check(points, weights / 5, weights / 5 * (1 - weights / 5) / 6)
    odd = torch.tensor([-1.0, float("nan")], device="cuda")
    assert torch.poisson(odd).isnan().all() and torch._standard_gamma(odd).isnan().all()
    assert float(torch._standard_gamma(torch.full((50,), 1e-6, device="cuda")).min()) > 0


def test_gamma_variates_move_with_their_parameters():
    torch.manual_seed(0)
    alpha = torch.tensor([0.5, 2.0, 30.0], device="cuda", requires_grad=True)
    torch.distributions.Gamma(alpha, 1.0).rsample((2000,)).mean(0).sum().backward()
    np.testing.assert_allclose(host(alpha.grad), [1, 1, 1], rtol=0.15)


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(RuntimeError, match="std >= 0"):
        torch.normal(0.0, torch.tensor([1.0, -1.0], device="cuda"))
    for weights, words in (([0.5, -0.1], "element < 0"), ([0.0, 0.0], "sum of probabilities"), ([1.0, np.nan], "nan")):
        for replacement, count in ((False, 1), (True, 5)):
            with pytest.raises(RuntimeError, match=words):
                torch.multinomial(torch.tensor(weights, device="cuda"), count, replacement).tolist()


def test_the_host_does_not_wait_for_the_gpu():
    cupyx = pytest.importorskip("cupyx")
    x = torch.ones(64, device="cuda")
    with cupyx.allow_synchronize(False):
        torch.rand(5, device="cuda"), torch.randn_like(x), torch.randint(5, (9,), device="cuda"), x.exponential_()
        torch.bernoulli(x * 0 + 0.5), torch.randperm(50, device="cuda"), F.dropout(x), torch.poisson(x)
        torch.multinomial(x, 5, replacement=True), torch.multinomial(x, 5), torch.normal(x, 2.0)
        F.dropout2d(x.reshape(2, 2, 4, 4))


def test_other_samplers_follow_the_generator():
    for draw in (
        lambda: torch.poisson(torch.full((50,), 4.0, device="cuda")),
        lambda: torch.binomial(torch.full((50,), 9.0, device="cuda"), torch.full((50,), 0.5, device="cuda")),
        lambda: torch._standard_gamma(torch.full((50,), 2.0, device="cuda")),
    ):
        torch.manual_seed(8)
        first, second = draw(), draw()
        torch.manual_seed(8)
        assert draw().tolist() == first.tolist() != second.tolist() and first.device.type == "cuda"


# --- where the numbers go --------------------------------------------------------------------------------------------


def test_memory_decides_the_order_and_not_the_indices():
    torch.manual_seed(3)
    plain = torch.empty(4, 6, device="cuda").uniform_()
    torch.manual_seed(3)
    turned = torch.empty(4, 6, device="cuda").t().uniform_().t()
    torch.manual_seed(3)
    like = torch.rand_like(torch.empty(4, 6, device="cuda").t())
    torch.manual_seed(3)
    wide = torch.zeros(4, 12, device="cuda")
    wide[:, ::2].uniform_()
    assert plain.tolist() == turned.tolist() == like.t().tolist() == wide[:, ::2].tolist()
    assert like.stride() == (1, 6) and float(wide[:, 1::2].sum()) == 0


def test_results_go_where_they_are_asked_to_go():
    out = torch.empty(5, device="cuda")
    torch.manual_seed(0)
    assert torch.rand(5, out=out, device="cuda") is out
    np.testing.assert_allclose(host(out), UNIFORM[:5], atol=5.1e-5)
    assert torch.rand(0, device="cuda").shape == (0,) and torch.rand((), device="cuda").shape == ()
    x = torch.rand(3, device="cuda", requires_grad=True)
    (y := x * 2).uniform_()
    assert x.requires_grad and y.device.type == "cuda"


# --- dropout ---------------------------------------------------------------------------------------------------------


@emulated
@pytest.mark.parametrize(
    ("dtype", "n", "pack"),
    [("float32", 3000, 4), ("float32", 3002, 2), ("float32", 3001, 1), ("float16", 4000, 8), ("float64", 1002, 2)],
)
def test_dropout_in_the_order_of_pytorchs_threads(small, dtype, n, pack):
    x = torch.arange(1, n + 1, device="cuda").remainder(50).to(getattr(torch, dtype)).requires_grad_()
    torch.manual_seed(6)
    y = F.dropout(x, 0.3)
    i = np.arange(n)
    if pack == 1:
        u = uniforms(n, 6, 0)
    else:
        threads = min(2, -(-n // 256)) * 256
        owner, turn = i // pack % threads, i // pack // threads
        u = np.choose(i % pack % 4, philox(turn * -(-pack // 4) + i % pack // 4, owner, 6)) * 2.0**-32 + 2.0**-33
    kept = u < 0.7
    np.testing.assert_allclose(host(y), np.where(kept, host(x) / 0.7, 0), rtol=1e-3 if dtype == "float16" else 1e-6)
    g = torch.arange(n, device="cuda").remainder(7).to(x.dtype)
    y.backward(g)
    np.testing.assert_allclose(
        host(x.grad), np.where(kept, host(g) / 0.7, 0), rtol=1e-3 if dtype == "float16" else 1e-6
    )


def test_dropout_follows_the_memory_of_its_input():
    torch.manual_seed(1)
    plain = F.dropout(torch.ones(6, 4, device="cuda"))
    torch.manual_seed(1)
    x = torch.ones(6, 4, device="cuda").t().requires_grad_()
    turned = F.dropout(x)
    turned.backward(torch.ones(4, 6, device="cuda"))
    assert turned.t().tolist() == plain.tolist() == x.grad.t().tolist() and turned.stride() == x.stride()
    assert torch.autograd.gradgradcheck(
        lambda t: _again(t, 5), torch.ones(2, 4, dtype=torch.float64, device="cuda", requires_grad=True)
    )


def _again(x, seed):
    torch.manual_seed(seed)
    return F.dropout(x, 0.5) ** 2


@pytest.mark.parametrize(
    "drop",
    [
        lambda x: F.dropout2d(x, 0.25), lambda x: F.alpha_dropout(x, 0.25, training=True),
        lambda x: F.dropout(x, 0.25, inplace=True), lambda x: torch.native_dropout(x, 0.25, True)[0],
    ],
)  # fmt: skip
def test_other_kinds_of_dropout(drop):
    torch.manual_seed(0)
    y = drop(torch.ones(100, 40, 2, 2, device="cuda"))
    values, counts = np.unique(host(y), return_counts=True)
    assert len(values) == 2 and abs(counts.max() / counts.sum() - 0.75) < 0.03
    assert y.device.type == "cuda"


def test_native_dropout_tells_what_was_kept():
    out, kept = torch.native_dropout(torch.ones(64, device="cuda"), 0.5, True)
    assert kept.dtype is torch.bool and ((out != 0) == kept).all()


def test_attention_drops_weights():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 8, 4, device="cuda", requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    out.sum().backward()
    assert out.device.type == "cuda" and bool(q.grad.isfinite().all())


# --- generators ------------------------------------------------------------------------------------------------------


def test_one_seed_for_all_generators():
    torch.manual_seed(12)
    assert torch.cuda.initial_seed() == 12 == torch.initial_seed()
    first = torch.rand(3, device="cuda").tolist()
    torch.cuda.manual_seed(12)
    assert torch.rand(3, device="cuda").tolist() == first
    torch.cuda.manual_seed_all(13)
    assert torch.cuda.initial_seed() == 13 and torch.initial_seed() == 12
    torch.cuda.seed()
    assert torch.cuda.initial_seed() != 13
    assert len(torch.cuda.default_generators) == torch.cuda.device_count()
    assert isinstance(torch.cuda.default_generators[0], torch.Generator)
    assert torch.manual_seed(-1).initial_seed() == 2**64 - 1 == torch.cuda.initial_seed()


def test_states_are_a_seed_and_an_offset():
    torch.cuda.manual_seed(7)
    torch.rand(3, device="cuda")
    state = torch.cuda.get_rng_state()
    assert state.tolist() == [7, *[0] * 7, 4, *[0] * 7] and state.device.type == "cpu"
    first = torch.rand(3, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    assert torch.rand(3, device="cuda").tolist() == first
    states = torch.cuda.get_rng_state_all()
    torch.rand(3, device="cuda")
    torch.cuda.set_rng_state_all(states)
    assert [s.tolist() for s in torch.cuda.get_rng_state_all()] == [s.tolist() for s in states]


def test_generators_of_ones_own():
    g = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(g, PhiloxGenerator) and g.device == torch.device("cuda", 0) and g.get_offset() == 0
    twins = [g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    before = torch.cuda.get_rng_state().tolist()
    first = torch.randn(5, generator=g, device="cuda").tolist()
    assert all(torch.randn(5, generator=twin, device="cuda").tolist() == first for twin in twins)
    assert torch.cuda.get_rng_state().tolist() == before
    g.set_offset(0)
    assert torch.randn(5, generator=g, device="cuda").tolist() == first
    h = torch.Generator("cuda:0")
    h.set_state(g.get_state())
    assert torch.rand(2, generator=h, device="cuda").tolist() == torch.rand(2, generator=g, device="cuda").tolist()
    assert h.seed() == h.initial_seed() and h.get_offset() == 0


def test_errors_of_generators():
    g, c = torch.Generator("cuda"), torch.Generator()
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(3, generator=g)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(3, generator=c, device="cuda")
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.empty(3, device="cuda").normal_(generator=c)
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        g.set_offset(3)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        g.set_state(torch.zeros(17, dtype=torch.uint8))
    with pytest.raises(TypeError):
        g.set_state(torch.zeros(16))
    assert torch.rand(3, generator=g, device="meta").shape == (3,)


def test_forked_generators_come_back():
    torch.manual_seed(0)
    torch.rand(2, device="cuda")
    before = torch.cuda.get_rng_state().tolist()
    with torch.random.fork_rng():
        torch.manual_seed(99)
        torch.rand(2, device="cuda")
    assert torch.cuda.get_rng_state().tolist() == before and torch.initial_seed() == 0
    with torch.random.fork_rng(devices=[]):
        torch.rand(2, device="cuda")
    assert torch.cuda.get_rng_state().tolist() != before


def test_a_checkpoint_drops_the_same_twice():
    torch.manual_seed(0)
    x = torch.ones(1000, device="cuda", requires_grad=True)
    for reentrant in (False, True):
        kept = []
        out = torch.utils.checkpoint.checkpoint(
            lambda t, kept=kept: kept.append(F.dropout(t)) or kept[-1] * t, x, use_reentrant=reentrant
        )
        after = torch.cuda.get_rng_state().tolist()
        out.sum().backward()
        assert len(kept) == 2 and (kept[0] == kept[1]).all() and torch.cuda.get_rng_state().tolist() == after


def test_vmap_notices_what_is_drawn_on_the_gpu():
    x = torch.ones(3, 4, device="cuda")
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(lambda row: row + torch.rand(4, device="cuda"))(x)
    same = torch.vmap(lambda row: row + torch.rand(4, device="cuda"), randomness="same")(x)
    different = torch.vmap(lambda row: row + torch.rand(4, device="cuda"), randomness="different")(x)
    assert (same[0] == same[1]).all() and not (different[0] == different[1]).any()


def test_each_gpu_has_a_generator():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    torch.manual_seed(4)
    first, second = (torch.rand(5, device=f"cuda:{i}") for i in (0, 1))
    assert first.tolist() == second.tolist() and second.device == torch.device("cuda", 1)
    torch.cuda.manual_seed_all(5)
    torch.rand(5, device="cuda:1")
    offsets = [state.tolist()[8] for state in torch.cuda.get_rng_state_all()]
    assert offsets[:2] == [0, 4]
    with torch.cuda.device(1):
        torch.cuda.manual_seed(6)
        assert torch.rand(5, device="cuda").device.index == 1 and torch.Generator("cuda").device.index == 1
    assert torch.cuda.initial_seed() == 5
    x = torch.ones(8, 8, device="cuda:1", requires_grad=True)
    places = torch.randperm(8, device="cuda:1")
    y = F.dropout(F.scaled_dot_product_attention(x, x, x))[places] + F.embedding(places, x)
    (y + torch.poisson(x.detach()) + torch.multinomial(x.detach(), 8, True)).sum().backward()
    assert x.grad.device.index == 1
    with pytest.raises(RuntimeError, match="Expected a 'cuda:1' generator device but found 'cuda:0'"):
        torch.empty(3, device="cuda:1").uniform_(generator=torch.Generator("cuda:0"))


def test_initialisers_draw_on_the_device():
    torch.manual_seed(0)
    w = torch.nn.init.kaiming_uniform_(torch.empty(64, 32, device="cuda"))
    assert w.device.type == "cuda" and 0.2 < float(w.abs().max()) < 0.4331
    torch.manual_seed(0)
    layer = torch.nn.Linear(32, 64, device="cuda")
    assert layer.weight.device.type == "cuda"
