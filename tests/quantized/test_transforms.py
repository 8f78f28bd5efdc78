"""Fake quantization, and products with small weights, under vmap and in forward mode."""

import warnings

import pytest

import tensorgrad as torch
from tensorgrad.ops.nn.small_weights import int4_linear, int8_linear, packed_int4
from tests.support.compare import assert_close


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


SCALES, ZEROS = numbers(3).abs() + 0.1, torch.zeros(3, dtype=torch.int32)
FAKE = {
    "one scale": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 1, -8, 7),
    "a scale of each channel": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 0, -8, 7),
    "of the last dimension": lambda x: torch.fake_quantize_per_channel_affine(x.mT, SCALES, ZEROS, 1, -8, 7),
    "learnable": lambda x: torch._fake_quantize_learnable_per_tensor_affine(
        x, SCALES[:1], ZEROS[:1].float(), -8, 7, 1.0
    ),
}
EIGHT = torch.randint(-128, 128, (6, 4), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
FOUR = packed_int4(torch.randint(0, 16, (6, 64), generator=torch.Generator().manual_seed(1)))
EACH, GROUPS = numbers(6), numbers(6, 2)
PRODUCTS = {
    "int8": (4, lambda x, b: int8_linear(x, EIGHT, EACH, b)),
    "int4": (64, lambda x, b: int4_linear(x, FOUR, GROUPS, None, b)),
}


@pytest.mark.parametrize("name", FAKE)
def test_fake_quantization_of_each_sample(name):
    x = numbers(5, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a loop over the samples
        made = torch.func.vmap(FAKE[name])(x)
    assert torch.equal(made, torch.stack([FAKE[name](each) for each in x]))


@pytest.mark.parametrize("name", FAKE)
def test_its_tangents_are_its_gradients(name):
    """Each result depends on one value only."""
    x, t = numbers(3, 4), numbers(4, 3).reshape(3, 4)
    leaf = x.clone().requires_grad_()
    tangents = torch.func.jvp(FAKE[name], (x,), (t,))[1]
    out = FAKE[name](leaf)
    (grad,) = torch.autograd.grad(out, leaf, tangents)
    assert_close((tangents * tangents).sum(), (grad * t).sum())


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    depth, product = PRODUCTS[name]
    x, b = numbers(5, 3, depth), numbers(5, 6)
    assert_close(torch.func.vmap(product, (0, None))(x, b[0]), torch.stack([product(each, b[0]) for each in x]))
    each = torch.stack([product(one, bias) for one, bias in zip(x, b)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_close(torch.func.vmap(product)(x, b), each)
    tangents = torch.func.jvp(product, (x[0], b[0]), (x[1], b[1]))[1]
    assert_close(tangents, product(x[1], b[1]))
    assert_close(torch.func.jvp(lambda x: product(x, b[0]), (x[0],), (x[1],))[1], product(x[1], None))
