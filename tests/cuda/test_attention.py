"""Attention on the device against torch's on the CPU: results and gradients of all kinds of masks and shapes."""

import itertools

import numpy as np
import pytest

import tensorgrad
from tensorgrad.nn import functional as F

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("tensorgrad.kernels.cuda.attention")

TOLERANCE = {"float32": 5e-6, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


def given(dtype, *shapes, seed=0):
    """The same random numbers for both libraries, as leaves: (ours on the device, theirs in float32 on the CPU)."""
    numbers = np.random.default_rng(seed)
    ours, theirs = [], []
    for shape in shapes:
        rounded = torch.tensor(numbers.standard_normal(shape)).to(getattr(torch, dtype))
        theirs.append(rounded.to(torch.float64).clone().requires_grad_())
        mine = tensorgrad.tensor(rounded.double().clone().numpy()).to("cuda").to(getattr(tensorgrad, dtype))
        ours.append(mine.requires_grad_())
    return ours, theirs


def close(ours, theirs, dtype):
    assert ours.device.type == "cuda" and tuple(ours.shape) == tuple(theirs.shape)
    tolerance = TOLERANCE[dtype]
    mine = ours.detach().cpu().double().numpy()
    np.testing.assert_allclose(mine, theirs.detach().double().numpy(), rtol=tolerance, atol=tolerance)


def compare(dtype, ours, theirs, mask=None, **options):
    """Results and gradients of both libraries; a mask may be a pair of leaves, whose gradients are compared too."""
    out = F.scaled_dot_product_attention(*ours, attn_mask=mask and mask[0], **options)
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=mask and mask[1], **options)
    assert str(out.dtype) == f"torch.{dtype}"
    close(out, expected, dtype)
    g = np.random.default_rng(1).standard_normal(expected.shape)
    out.backward(tensorgrad.tensor(g).to("cuda").to(out.dtype))
    expected.backward(torch.tensor(g).to(getattr(torch, dtype)).double())
    pairs = [*zip(ours, theirs, strict=True), *([mask] if mask and mask[1].requires_grad else [])]
    for mine, other in pairs:
        close(mine.grad, other.grad, dtype)
    return out


@pytest.mark.parametrize(
    ("dtype", "queries", "keys", "width", "values", "causal"),
    [
        ("float32", 70, 45, 16, 24, False), ("float32", 70, 45, 16, 24, True), ("float32", 20, 100, 16, 16, True),
        ("float16", 66, 130, 40, 40, True), ("bfloat16", 70, 33, 72, 80, False), ("bfloat16", 1, 1, 72, 80, False),
        ("float64", 5, 6, 4, 4, True), ("float32", 4, 3, 136, 136, False),
    ],
)  # fmt: skip
def test_results_and_gradients(dtype, queries, keys, width, values, causal):
    ours, theirs = given(dtype, (2, 2, queries, width), (2, 2, keys, width), (2, 2, keys, values))
    compare(dtype, ours, theirs, is_causal=causal)


def test_a_boolean_mask_may_hide_everything():
    ours, theirs = given("float32", (2, 2, 9, 16), (2, 2, 40, 16), (2, 2, 40, 16))
    look = np.random.default_rng(2).random((2, 1, 9, 40)) < 0.5
    look[0, 0, 3] = False
    out = compare("float32", ours, theirs, (tensorgrad.tensor(look).to("cuda"), torch.tensor(look)))
    assert not out[0, :, 3].any() and not ours[0].grad[0, :, 3].any()


@pytest.mark.parametrize("shape", [(9, 40), (2, 2, 9, 40), (40,)])
def test_an_added_mask_gets_a_gradient(shape):
    ours, theirs = given("float32", (2, 2, 9, 16), (2, 2, 40, 16), (2, 2, 40, 16))
    (mine,), (other,) = given("float32", shape, seed=4)
    compare("float32", ours, theirs, (mine, other))


def test_minus_infinity_in_a_mask():
    ours, theirs = given("float32", (1, 1, 5, 16), (1, 1, 40, 16), (1, 1, 40, 16))
    added = np.where(np.random.default_rng(3).random((5, 40)) < 0.7, -np.inf, 0.0)
    compare(
        "float32", ours, theirs, (tensorgrad.tensor(added, dtype=tensorgrad.float32).to("cuda"), torch.tensor(added))
    )


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((5, 8), (7, 8), (7, 8)), ((3, 5, 8), (3, 7, 8), (3, 7, 8)), ((2, 3, 5, 8), (1, 3, 7, 8), (7, 8)),
        ((2, 1, 3, 5, 8), (2, 2, 3, 7, 8), (1, 2, 3, 7, 8)),
    ],
)  # fmt: skip
def test_any_number_of_leading_dimensions(q, k, v):
    ours, theirs = given("float32", q, k, v)
    compare("float32", ours, theirs, scale=0.7)


def test_heads_that_lie_inside_of_places():
    """(batch, place, head, feature) in memory, as a projection makes them; the result lies likewise."""
    ours, theirs = given("float32", *[(2, 20, 3, 16)] * 3)
    out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in ours), is_causal=True)
    expected = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in theirs), is_causal=True)
    close(out, expected, "float32")
    assert out.transpose(1, 2).is_contiguous()
    (out**2).sum().backward()
    (expected**2).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        close(mine.grad, other.grad, "float32")


def test_strides_and_places_of_any_kind():
    """Slices that begin at odd places, and features that do not lie side by side."""
    for cut, turn in itertools.product([False, True], repeat=2):
        ours, theirs = given("float32", (1, 2, 16, 21), (1, 2, 16, 31), (1, 2, 16, 31))
        mine, other = (
            [t.transpose(2, 3) if turn else t.transpose(2, 3).contiguous() for t in ts] for ts in (ours, theirs)
        )
        if cut:
            mine, other = ([t[..., 1:8] for t in ts] for ts in (mine, other))
        close(
            F.scaled_dot_product_attention(*mine), torch.nn.functional.scaled_dot_product_attention(*other), "float32"
        )


def test_shared_heads():
    ours, theirs = given("float32", (1, 4, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8))
    compare("float32", ours, theirs, enable_gqa=True)


def test_dropped_weights_are_the_same_back_as_forward():
    """A weight of 0 or 2 for each pair: the gradients are those of the same product in simple ops."""
    (q, k, v), _ = given("float32", (1, 2, 40, 16), (1, 2, 33, 16), (1, 2, 33, 16))
    from tensorgrad.ops.nn.attention import _attention, _twin

    drop = tensorgrad.tensor(np.random.default_rng(0).integers(0, 2, (1, 2, 40, 33)) * 2.0).float().to("cuda")
    results = []
    for attend in (_attention, _twin):
        out = attend(q, k, v, None, drop, True, 0.25)[0]
        results.append([out, *tensorgrad.autograd.grad((out**2).sum(), (q, k, v))])
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine.detach().cpu().numpy(), other.detach().cpu().numpy(), rtol=2e-5, atol=2e-5)


def test_the_weights_are_not_kept():
    (q, k, v), _ = given("float32", *[(1, 1, 8, 16)] * 3)
    _, logs = kernels.attention(q._array, k._array, v._array, None, None, False, 1.0)
    assert logs.shape == (1, 1, 8)


def test_second_derivatives_come_from_the_twin():
    (q, k, v), (tq, tk, tv) = given("float32", *[(1, 1, 6, 8)] * 3)
    found = []
    for library, a, b, c in ((tensorgrad, q, k, v), (torch, tq, tk, tv)):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = library.nn.functional.scaled_dot_product_attention(a, b, c)
            (g,) = library.autograd.grad((out**2).sum(), a, create_graph=True)
            found.append(library.autograd.grad((g**2).sum(), b)[0])
    np.testing.assert_allclose(found[0].cpu().numpy(), found[1].numpy(), rtol=1e-4, atol=1e-4)


def test_what_the_kernel_cannot_do_is_left_to_others(monkeypatch):
    """Little shared memory, wide heads, float64, no keys."""
    monkeypatch.setattr(kernels, "_most_shared", lambda device: 0)
    ours, theirs = given("float32", (1, 1, 5, 8), (1, 1, 6, 8), (1, 1, 6, 8))
    assert kernels.attention(*(t._array for t in ours), None, None, False, 1.0) is NotImplemented
    compare("float32", ours, theirs, is_causal=True)
    empty = F.scaled_dot_product_attention(*(tensorgrad.ones(1, n, 8, device="cuda") for n in (3, 0, 0)))
    assert empty.shape == (1, 3, 8) and not empty.any()
