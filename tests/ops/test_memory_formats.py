"""Memory formats through ops: results and gradients have the strides that torch gives them."""

import math
import warnings

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import of_torch
from tests.support.compare import assert_close

torch = pytest.importorskip("torch")

IMAGES = [
    (2, 4, 6, 6),
    (1, 4, 6, 6),
    (2, 1, 6, 6),
    (2, 4, 1, 1),
    (1, 1, 6, 6),
    (2, 4, 1, 6),
    (2, 4, 6, 1),
    (1, 1, 1, 1),
]
VOLUMES = [(2, 4, 4, 4, 4), (2, 1, 4, 4, 4), (2, 4, 1, 1, 1), (2, 4, 4, 1, 1)]


def ramp(t, *shape):
    return t.linspace(-1, 1, math.prod(shape)).reshape(shape)


def last(t, x):
    """The input laid out by PyTorch's function, which leaves what has only one channel as it is."""
    return x.contiguous(memory_format=t.channels_last if x.dim() == 4 else t.channels_last_3d)


def moved(t, x):
    """The same by a view of (N, *S, C), as images come from files: with one channel, too."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def transposed(t, x):
    return x.movedim(-1, -2).contiguous().movedim(-2, -1)


def half(t, x):
    """Every second channel: with gaps."""
    return last(t, t.cat([x, x], 1))[:, : x.shape[1]]


LAYOUTS = {"rows": lambda t, x: x, "last": last, "moved": moved, "transposed": transposed, "half": half}


def conv(t, x, weight, **options):
    return getattr(t.nn.functional, f"conv{x.dim() - 2}d")(x, weight, **options)


def conv_transpose(t, x, weight, **options):
    return getattr(t.nn.functional, f"conv_transpose{x.dim() - 2}d")(x, weight, **options)


def kernel(t, x, out, channels=None, size=3):
    return ramp(t, out, channels or x.shape[1], *[size] * (x.dim() - 2))


def pool(t, x, name, *args, **options):
    return getattr(t.nn.functional, f"{name}{x.dim() - 2}d")(x, *args, **options)


def pads(x):
    return (1, 1) * (x.dim() - 2)


def channels(t, x):
    return ramp(t, x.shape[1])


F = {
    "conv": lambda t, x: conv(t, x, kernel(t, x, 5), padding=1),
    "conv, strided, with a bias": lambda t, x: conv(t, x, kernel(t, x, 5), bias=ramp(t, 5), padding=1, stride=2),
    "conv to one channel": lambda t, x: conv(t, x, kernel(t, x, 1), padding=1),
    "conv of each channel": lambda t, x: conv(t, x, kernel(t, x, x.shape[1], 1), padding=1, groups=x.shape[1]),
    "conv, dilated": lambda t, x: conv(t, x, kernel(t, x, 5), padding=2, dilation=2),
    "conv, padded to the same size": lambda t, x: conv(t, x, kernel(t, x, 5), padding="same"),
    "conv, weight in channels_last": lambda t, x: conv(t, x, last(t, kernel(t, x, 5)), padding=1),
    "conv_transpose": lambda t, x: conv_transpose(t, x, ramp(t, x.shape[1], 5, *[3] * (x.dim() - 2)), stride=2),
    "conv_transpose, weight in channels_last": lambda t, x: conv_transpose(
        t, x, last(t, ramp(t, x.shape[1], 5, *[3] * (x.dim() - 2)))
    ),
    "batch_norm of running statistics": lambda t, x: t.nn.functional.batch_norm(
        x, channels(t, x), channels(t, x) + 2, channels(t, x), channels(t, x)
    ),
    "batch_norm in training": lambda t, x: t.nn.functional.batch_norm(x, None, None, channels(t, x), training=True),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x, 1, channels(t, x), channels(t, x)),
    "max_pool": lambda t, x: pool(t, x, "max_pool", 2, padding=1),
    "max_pool with indices": lambda t, x: pool(t, x, "max_pool", 2, padding=1, return_indices=True),
    "max_unpool": lambda t, x: pool(
        t, x, "max_unpool", t.arange(math.prod(x.shape[2:])).reshape(x.shape[2:]).expand(x.shape).contiguous(), 2
    ),
    "avg_pool": lambda t, x: pool(t, x, "avg_pool", 2, padding=1),
    "lp_pool": lambda t, x: pool(t, x, "lp_pool", 2, 1),
    "adaptive_avg_pool": lambda t, x: pool(t, x, "adaptive_avg_pool", 2),
    "adaptive_max_pool": lambda t, x: pool(t, x, "adaptive_max_pool", 2, return_indices=True),
    "nearest": lambda t, x: t.nn.functional.interpolate(x, scale_factor=2),
    "nearest-exact": lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "linear": lambda t, x: t.nn.functional.interpolate(
        x, scale_factor=2, mode="bilinear" if x.dim() == 4 else "trilinear"
    ),
    "area": lambda t, x: t.nn.functional.interpolate(x, size=2, mode="area"),
    "zeros around": lambda t, x: t.nn.functional.pad(x, pads(x)),
    "zeros around, and more channels": lambda t, x: t.nn.functional.pad(x, (*pads(x), 1, 1)),
    "edges repeated": lambda t, x: t.nn.functional.pad(x, pads(x), mode="replicate"),
    "wrapped around": lambda t, x: t.nn.functional.pad(x, pads(x), mode="circular"),
    "flip": lambda t, x: x.flip(1, 3),
    "fliplr": lambda t, x: x.fliplr(),
    "clone": lambda t, x: x.clone(),
    "local_response_norm": lambda t, x: t.nn.functional.local_response_norm(x, 2),
}
IMAGES_ONLY = {
    "bicubic": lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True),
    "antialiased": lambda t, x: t.nn.functional.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
}
NEEDS = {  # what a function needs of its input's shape
    "batch_norm in training": lambda s: math.prod(s) > s[1],
    "group_norm": lambda s: math.prod(s) > 1,
    "avg_pool": lambda s: len(s) == 4 or min(s[2:]) > 1,
    "mirrored": lambda s: min(s[2:]) > 1,
    "pixel_shuffle": lambda s: s[1] % 4 == 0,
    "pixel_unshuffle": lambda s: min(s[2:]) % 2 == 0,
    "channel_shuffle": lambda s: s[1] % 2 == 0,
}
F["mirrored"] = lambda t, x: t.nn.functional.pad(x, pads(x), mode="reflect")
F["channel_shuffle"] = lambda t, x: t.channel_shuffle(x, 2)
IMAGES_ONLY["pixel_shuffle"] = lambda t, x: t.pixel_shuffle(x, 2)
IMAGES_ONLY["pixel_unshuffle"] = lambda t, x: t.pixel_unshuffle(x, 2)

# What the memory format cannot tell: NumPy keeps no strides of dimensions of size 1 in what element by element ops
# make, and `clone` of what has gaps or one channel only differs in those as well.
BY_ELEMENTS = {"wrapped around", "clone", "flip", "fliplr", "lp_pool", "local_response_norm", "channel_shuffle"}


def effective_strides(strides, shape):
    """Returns the strides of the dimensions that have several elements."""
    return tuple(s for s, n in zip(strides, shape, strict=True) if n > 1)


def observe(t, function, shape, layout, exact):
    x = LAYOUTS[layout](t, ramp(t, *shape)).requires_grad_()
    results = function(t, x)
    results = results if isinstance(results, tuple) else (results,)
    results[0].sum().backward()
    seen = [r.stride() if exact else effective_strides(r.stride(), r.shape) for r in results]
    return seen, effective_strides(x.grad.stride(), shape), [r.detach() for r in results]


def assert_same_layout(name, function, shape, layout):
    exact = name not in BY_ELEMENTS
    expected = of_torch(lambda: observe(torch, function, shape, layout, exact))
    found = observe(tensorgrad, function, shape, layout, exact)
    assert found[:2] == expected[:2]
    assert_close(found[2], expected[2], 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*F, *IMAGES_ONLY])
def test_images_keep_their_format(name, layout):
    if (name, layout) == ("local_response_norm", "transposed"):
        pytest.skip("torch's division keeps any order of its first operand, NumPy's that on which both agree")
    for shape in IMAGES:
        if NEEDS.get(name, lambda s: True)(shape):
            assert_same_layout(name, F.get(name) or IMAGES_ONLY[name], shape, layout)


@pytest.mark.parametrize("layout", ["rows", "last", "moved"])
@pytest.mark.parametrize("name", F)
def test_volumes_keep_their_format(name, layout):
    for shape in VOLUMES:
        if NEEDS.get(name, lambda s: True)(shape):
            assert_same_layout(name, F[name], shape, layout)


@pytest.mark.parametrize("t", [tensorgrad, torch], ids=["tensorgrad", "torch"])
def test_a_module_in_channels_last_makes_its_results_so(t):
    net = t.nn.Sequential(
        t.nn.Conv2d(3, 8, 3, padding=1), t.nn.BatchNorm2d(8), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Conv2d(8, 4, 1)
    ).to(memory_format=t.channels_last)
    assert net[0].weight.is_contiguous(memory_format=t.channels_last)
    x = ramp(t, 2, 3, 8, 8).requires_grad_()
    middle = net[0](x)
    assert middle.stride() == (512, 1, 64, 8)
    out = net(x)
    assert out.is_contiguous(memory_format=t.channels_last) and not out.is_contiguous()
    out.square().sum().backward()
    assert x.grad.is_contiguous() and net[0].weight.grad.stride() == net[0].weight.stride()
    assert net.to(memory_format=t.contiguous_format)(x.detach()).is_contiguous()


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", ["conv", "max_pool", "group_norm", "edges repeated", "nearest"])
def test_every_dtype_does(name, dtype):
    def strides(t):
        x = last(t, ramp(t, 2, 4, 6, 6)).to(getattr(t, dtype))
        if name == "conv":
            return conv(t, x, kernel(t, x, 5).to(x.dtype)).stride()
        if name == "group_norm":
            return t.nn.functional.group_norm(x, 2).stride()
        return F[name](t, x).stride()

    assert strides(tensorgrad) == of_torch(lambda: strides(torch))


def test_large_images_too():
    for function in (F["conv"], F["max_pool with indices"], F["avg_pool"], F["batch_norm in training"]):
        assert_same_layout("large", function, (4, 8, 48, 48), "last")


@pytest.mark.parametrize("name", ["conv", "max_pool with indices", "batch_norm in training", "nearest", "zeros around"])
def test_the_meta_device_tells_what_others_will_do(name):
    def strides(t, device):
        x = t.empty(2, 4, 6, 6, device=device).contiguous(memory_format=t.channels_last)
        if name == "conv":
            return [conv(t, x, t.empty(5, 4, 3, 3, device=device)).stride()]
        if name == "batch_norm in training":
            return [t.nn.functional.batch_norm(x, None, None, training=True).stride()]
        results = F[name](t, x)
        return [r.stride() for r in (results if isinstance(results, tuple) else (results,))]

    assert strides(tensorgrad, "meta") == of_torch(lambda: strides(torch, "cpu"))


def test_another_dtype_in_the_layout_of_a_transposed_tensor_casts_nothing(monkeypatch):
    """NumPy warns where NaN becomes an integer: the new tensor must not read the memory that it gets."""

    def dirty(*args, **kwargs):
        made = empty_like(*args, **kwargs)
        made.fill(math.nan if made.dtype.kind == "f" else 7)
        return made

    strides = torch.ones_like(torch.zeros(40, 30).t(), dtype=torch.int64).stride()
    x, empty_like = tensorgrad.zeros(40, 30).t(), np.empty_like
    monkeypatch.setattr(np, "empty_like", dirty)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = tensorgrad.ones_like(x, dtype=tensorgrad.int64)
    assert made.stride() == strides and made.sum() == 1200
