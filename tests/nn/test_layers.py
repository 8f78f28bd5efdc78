"""Layers against PyTorch: the same seed gives the same weights, outputs, gradients, names and text."""

import re

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import nn
from tests.support.alike import last_bit
from tests.support.compare import assert_close, to_torch

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is the oracle of this test and is not installed")


def values(*shape, seed=0, low=None):
    """Random numbers; positive ones from ``low`` on if it is given."""
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return tg.tensor((drawn if low is None else low + np.abs(drawn)).astype("float32"))


def integers(high, *shape, seed=0):
    return tg.tensor(np.random.default_rng(seed).integers(0, high, shape))


def signs(*shape):
    return tg.tensor(np.where(np.random.default_rng(3).random(shape) < 0.5, -1.0, 1.0).astype("float32"))


def row(name, *inputs, args=(), **kwargs):
    text = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])
    return pytest.param(name, args, kwargs, inputs, id=f"{name}({text})")


def layer_rows():
    x1, x2, x3 = (2, 4, 9), (2, 4, 7, 8), (1, 4, 5, 6, 5)
    rows = [
        row("Identity", values(2, 3)),
        row("Linear", values(4, 3), args=(3, 5)),
        row("Linear", values(2, 4, 3), args=(3, 5), bias=False),
        row("Linear", values(3), args=(3, 5)),
        row("Bilinear", values(4, 2), values(4, 3, seed=1), args=(2, 3, 5)),
        row("Flatten", values(2, 3, 4)),
        row("Flatten", values(2, 3, 4), args=(0, 1)),
        row("Unflatten", values(2, 12), args=(1, (3, 4))),
        row("PixelShuffle", values(1, 8, 3, 3), args=(2,)),
        row("PixelUnshuffle", values(1, 2, 6, 4), args=(2,)),
        row("ChannelShuffle", values(1, 6, 2, 2), args=(3,)),
        row("Embedding", integers(6, 2, 5), args=(6, 3)),
        row("Embedding", integers(6, 2, 5), args=(6, 3), padding_idx=-2),
        row("CosineSimilarity", values(3, 4), values(3, 4, seed=1)),
        row("PairwiseDistance", values(3, 4), values(3, 4, seed=1), p=1.0, keepdim=True),
    ]
    for n, x in ((1, x1), (2, x2), (3, x3)):
        image = values(*x)
        rows += [
            row(f"Conv{n}d", image, args=(4, 6, 3)),
            row(f"Conv{n}d", image, args=(4, 6, 3), stride=2, padding=1, groups=2, bias=False),
            row(f"Conv{n}d", image, args=(4, 2, 2), padding="same", dilation=2),
            row(f"Conv{n}d", image, args=(4, 2, 3), padding="valid"),
            row(f"Conv{n}d", values(*x[1:]), args=(4, 2, 3)),
            row(f"Conv{n}d", image, args=(4, 2, 3), padding=1, padding_mode="circular"),
            row(f"ConvTranspose{n}d", image, args=(4, 6, 3)),
            row(f"ConvTranspose{n}d", image, args=(4, 6, 3), stride=2, padding=1, output_padding=1, groups=2),
            row(f"MaxPool{n}d", image, args=(2,)),
            row(f"MaxPool{n}d", image, args=(3,), stride=2, padding=1, ceil_mode=True, return_indices=True),
            row(f"AvgPool{n}d", image, args=(2,)),
            row(f"AvgPool{n}d", image, args=(3, 2, 1), count_include_pad=False),
            row(f"AdaptiveAvgPool{n}d", image, args=(2,)),
            row(f"AdaptiveMaxPool{n}d", image, args=(2,)),
            row(f"BatchNorm{n}d", image, args=(4,)),
            row(f"BatchNorm{n}d", image, args=(4,), momentum=None, bias=False),
            row(f"BatchNorm{n}d", image, args=(4,), affine=False, track_running_stats=False),
            row(f"InstanceNorm{n}d", image, args=(4,), affine=True, track_running_stats=True),
            row(f"InstanceNorm{n}d", values(*x[1:]), args=(4,)),
            row(f"ConstantPad{n}d", image, args=(1, 2.5)),
            row(f"ZeroPad{n}d", image, args=(tuple(range(2 * n)),)),
            row(f"ReplicationPad{n}d", image, args=(1,)),
            row(f"ReflectionPad{n}d", image, args=(2,)),
            row(f"CircularPad{n}d", image, args=(1,)),
        ]
    rows += [
        row("Conv2d", values(*x2), args=(4, 2, 3), padding=(2, 1), padding_mode="reflect"),
        row("Conv2d", values(*x2), args=(4, 2, (3, 2)), stride=(1, 2), padding_mode="replicate", padding=1),
        row("BatchNorm1d", values(5, 4), args=(4,)),
        row("LayerNorm", values(2, 3, 4), args=(4,)),
        row("LayerNorm", values(2, 3, 4), args=((3, 4),), bias=False),
        row("LayerNorm", values(2, 3, 4), args=(4,), elementwise_affine=False),
        row("GroupNorm", values(*x2), args=(2, 4)),
        row("GroupNorm", values(*x2), args=(2, 4), affine=False),
        row("RMSNorm", values(2, 3, 4), args=(4,)),
        row("RMSNorm", values(2, 3, 4), args=((3, 4),), eps=0.1, elementwise_affine=False),
        row("LocalResponseNorm", values(*x2), args=(2,)),
    ]
    return rows


def activation_rows():
    x = values(3, 4)
    plain = """ReLU GELU SiLU Sigmoid Tanh ELU LeakyReLU Softplus Hardtanh ReLU6 Mish SELU CELU Hardswish Hardsigmoid
        Softsign Tanhshrink Softshrink Hardshrink GLU LogSigmoid PReLU"""
    return [row(name, x) for name in plain.split()] + [
        row("ReLU", x, inplace=True),
        row("GELU", x, approximate="tanh"),
        row("ELU", x, args=(0.5,), inplace=True),
        row("CELU", x, alpha=2.0),
        row("LeakyReLU", x, args=(0.3,), inplace=True),
        row("Hardtanh", x, args=(-0.5, 0.25), inplace=True),
        row("Threshold", x, args=(0.1, 20.0), inplace=True),
        row("Softplus", x, beta=2.0, threshold=1.0),
        row("PReLU", values(2, 4, 3), args=(4,), init=0.1),
        row("Softmax", x, dim=1),
        row("Softmin", x, dim=0),
        row("LogSoftmax", x, dim=-1),
        row("Softmax2d", values(1, 2, 3, 4)),
    ]


def loss_rows():
    x, y = values(4, 5), values(4, 5, seed=1)
    chances = tg.softmax(y, 1)
    weight = values(5, low=0.1)
    rows = []
    for reduction in ("mean", "sum", "none"):
        rows += [
            row("L1Loss", x, y, reduction=reduction),
            row("MSELoss", x, y, reduction=reduction),
            row("SmoothL1Loss", x, y, reduction=reduction, beta=0.5),
            row("HuberLoss", x, y, reduction=reduction, delta=0.7),
            row("CrossEntropyLoss", x, integers(5, 4), reduction=reduction),
            row("BCELoss", tg.sigmoid(x), chances, reduction=reduction),
            row("BCEWithLogitsLoss", x, chances, reduction=reduction),
            row("KLDivLoss", x, chances, reduction=reduction),
            row("NLLLoss", x, integers(5, 4), reduction=reduction),
            row("SoftMarginLoss", x, signs(4, 5), reduction=reduction),
            row("HingeEmbeddingLoss", x, signs(4, 5), reduction=reduction),
            row("MarginRankingLoss", x, y, signs(4, 5), reduction=reduction, margin=0.2),
            row("CosineEmbeddingLoss", x, y, signs(4), reduction=reduction, margin=0.1),
            row("TripletMarginLoss", x, y, values(4, 5, seed=2), reduction=reduction),
            row("PoissonNLLLoss", x, values(4, 5, low=0.0), reduction=reduction, full=True),
            row("GaussianNLLLoss", x, y, values(4, 5, low=0.1), reduction=reduction, full=True),
            row("MultiMarginLoss", x, integers(5, 4), reduction=reduction),
            row("MultiLabelMarginLoss", x, integers(5, 4, 5), reduction=reduction),
            row("MultiLabelSoftMarginLoss", x, integers(2, 4, 5).float(), reduction=reduction),
        ]
    return rows + [
        row("CrossEntropyLoss", x, chances, label_smoothing=0.1),
        row("CrossEntropyLoss", x, integers(5, 4), weight=weight, ignore_index=1),
        row("NLLLoss", values(2, 5, 3), integers(5, 2, 3), weight=weight),
        row("BCEWithLogitsLoss", x, chances, pos_weight=weight, weight=values(5, low=0.2)),
        row("KLDivLoss", x, y, reduction="batchmean", log_target=True),
        row("TripletMarginLoss", x, y, values(4, 5, seed=2), swap=True, p=1.0, margin=3.0),
        row("TripletMarginWithDistanceLoss", x, y, values(4, 5, seed=2)),
        row("MultiMarginLoss", x, integers(5, 4), p=2, margin=0.5, weight=weight),
    ]


def pair(name, args=(), kwargs=None):
    """The layer here and in PyTorch, from one seed."""
    kwargs = kwargs or {}
    tg.manual_seed(7)
    mine = getattr(nn, name)(*args, **kwargs)
    torch.manual_seed(7)
    theirs = getattr(torch.nn, name)(*args, **{k: to_torch(v) for k, v in kwargs.items()})
    return mine, theirs


def assert_same_state(mine, theirs, tolerance=None):
    """Equal names in equal order, and values: equal (to the bit, if torch's are on this machine) or close."""
    mine, theirs = mine.state_dict(), theirs.state_dict()
    assert list(mine) == list(theirs)
    assert {k: dict(v) for k, v in mine._metadata.items()} == {k: dict(v) for k, v in theirs._metadata.items()}
    for name in mine:
        assert_close(mine[name], theirs[name], last_bit() if tolerance is None else tolerance)


@needs_torch
@pytest.mark.parametrize(("name", "args", "kwargs", "inputs"), layer_rows() + activation_rows() + loss_rows())
def test_layer(name, args, kwargs, inputs):
    mine, theirs = pair(name, args, kwargs)
    assert_same_state(mine, theirs)
    assert repr(mine) == repr(theirs)
    for training in (True, False):
        mine.train(training)
        theirs.train(training)
        own = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        if name == "SoftMarginLoss":  # PyTorch has no derivative for its target
            own[1].requires_grad_(False)
        other = [to_torch(x) for x in own]
        # An in-place layer cannot write into a leaf that requires grad: it gets a copy.
        out = mine(*[x * 1 if x.requires_grad else x for x in own])
        expected = theirs(*[x * 1 if x.requires_grad else x for x in other])
        assert_close(out, expected, 2e-5)
        if isinstance(out, tuple):
            out, expected = out[0], expected[0]
        if expected.requires_grad:
            factor = values(*expected.shape, seed=9)
            (out * factor).sum().backward()
            (expected * to_torch(factor)).sum().backward()
        for x, y in zip(own, other, strict=True):
            assert_close(x.grad, y.grad, 1e-4)
        for x, y in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert_close(x.grad, y.grad, 2e-4)
        assert_same_state(mine, theirs, 1e-6)


@needs_torch
@pytest.mark.parametrize(
    "name", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]
)
def test_dropout(name):
    x = {"Dropout1d": values(3, 4, 2), "Dropout3d": values(2, 3, 2, 2, 2)}.get(name, values(3, 4, 2, 5))
    mine, theirs = pair(name, (0.4,))
    assert repr(mine) == repr(theirs)
    for training in (True, False):
        mine.train(training)
        theirs.train(training)
        tg.manual_seed(1)
        out = mine(x)
        torch.manual_seed(1)
        assert_close(out, theirs(to_torch(x)), 2e-5)
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match=re.escape(f"dropout probability has to be between 0 and 1, but got {p}")):
            getattr(nn, name)(p)


ATTENTION = [
    {}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 5}, {"batch_first": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, {"dropout": 0.3},
]  # fmt: skip


@needs_torch
@pytest.mark.parametrize("options", ATTENTION, ids=str)
@pytest.mark.parametrize("masks", ["none", "padding", "mask", "both", "per head", "float"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention(options, masks, need_weights):
    mine, theirs = pair("MultiheadAttention", (8, 2), options)
    assert repr(mine) == repr(theirs)
    assert_same_state(mine, theirs)
    shapes = [(3, 2, 8), (4, 2, options.get("kdim", 8)), (4, 2, options.get("vdim", 8))]
    if options.get("batch_first"):
        shapes = [(n, length, e) for length, n, e in shapes]
    own = [values(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    masked = {}
    if masks in ("padding", "both", "per head"):
        masked["key_padding_mask"] = tg.tensor([[False, False, False, True], [False, True, False, False]])
    if masks in ("mask", "both"):
        masked["attn_mask"] = tg.tensor([[False, True, True, True], [False, False, True, True], [False] * 4])
    if masks == "per head":
        masked["attn_mask"] = integers(2, 4, 3, 4).bool() & tg.tensor([False, True, True, True])
    if masks == "float":
        masked["attn_mask"] = values(3, 4)
    other = [to_torch(x) for x in own]
    for average in (True, False):
        settings = {"need_weights": need_weights, "average_attn_weights": average}
        tg.manual_seed(3)
        out = mine(*own, **masked, **settings)
        torch.manual_seed(3)
        expected = theirs(*other, **{k: to_torch(v) for k, v in masked.items()}, **settings)
        assert_close(out, expected, 2e-5)
    out[0].sum().backward()
    expected[0].sum().backward()
    for x, y in zip([*own, *mine.parameters()], [*other, *theirs.parameters()], strict=True):
        assert_close(x.grad, y.grad, 1e-4)


@needs_torch
def test_attention_of_itself():
    """Shared inputs take other matrix products; unbatched ones, a causal hint, and inputs that do not fit."""
    mine, theirs = pair("MultiheadAttention", (8, 2), {"batch_first": True})
    x, y = values(2, 3, 8), values(2, 3, 8, seed=1)
    for inputs in ((x, x, x), (x, y, y), (x[0], x[0], x[0])):
        same = {id(t): to_torch(t) for t in inputs}
        assert_close(mine(*inputs), theirs(*(same[id(t)] for t in inputs)), 2e-5)
    causal = tg.ones(3, 3).triu(1).bool()
    assert_close(
        mine(x, x, x, attn_mask=causal, is_causal=True, need_weights=False),
        theirs(*[to_torch(x)] * 3, attn_mask=to_torch(causal), is_causal=True, need_weights=False),
        2e-5,
    )
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        mine(x, x, x, is_causal=True)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 8, but got 4"):
        mine(x[..., :4], x, x)
    with pytest.raises(RuntimeError, match=r"The shape of the 2D attn_mask is .*, but should be \(3, 3\)"):
        mine(x, x, x, attn_mask=causal[:2])
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(8, 3)


@needs_torch
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("settings", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_attention_of_itself_with_masks(batch_first, settings, training):
    """Masks broadcast to all heads; dropout draws what PyTorch's does."""
    padding = tg.tensor([[False, False, True], [False, False, False]])
    causal, of_heads = tg.ones(3, 3).triu(1).bool(), integers(2, 4, 3, 3).bool() & tg.tensor([False, True, True])
    every = [
        {"key_padding_mask": padding}, {"key_padding_mask": padding, "attn_mask": causal, "is_causal": True},
        {"attn_mask": values(3, 3)}, {"attn_mask": of_heads}, {"key_padding_mask": padding, "attn_mask": of_heads},
    ]  # fmt: skip
    mine, theirs = pair("MultiheadAttention", (8, 2), {"batch_first": batch_first, "dropout": 0.3})
    for masks in every:
        x = values(*((2, 3, 8) if batch_first else (3, 2, 8))).requires_grad_()
        other = to_torch(x)
        mine.train(training), theirs.train(training)
        tg.manual_seed(3)
        out = mine(x, x, x, **masks, **settings)
        torch.manual_seed(3)
        expected = theirs(other, other, other, **{k: to_torch(v) for k, v in masks.items()}, **settings)
        assert_close(out, expected, 2e-5)
        out[0].sum().backward()
        expected[0].sum().backward()
        assert_close(x.grad, other.grad, 1e-4)
        with tg.no_grad(), torch.no_grad():
            mine.eval(), theirs.eval()
            out = mine(x, x, x, **masks, **settings)
            assert_close(
                out, theirs(other, other, other, **{k: to_torch(v) for k, v in masks.items()}, **settings), 2e-5
            )


@needs_torch
def test_output_size_of_transposed_convolution():
    mine, theirs = pair("ConvTranspose2d", (2, 3, 3), {"stride": 3})
    x = values(1, 2, 4, 4)
    assert_close(mine(x, output_size=(13, 14)), theirs(to_torch(x), output_size=(13, 14)), 2e-5)
    for layer, given in ((mine, x), (theirs, to_torch(x))):
        with pytest.raises(ValueError, match=r"requested an output size of \[11, 12\], but valid sizes range from"):
            layer(given, output_size=[11, 12])


@needs_torch
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("Conv2d", (4, 6, 3), {"groups": 0}),
        ("Conv2d", (4, 6, 3), {"groups": 3}),
        ("Conv2d", (4, 6, 3), {"groups": 4}),
        ("Conv2d", (4, 6, 3), {"padding": "same", "stride": 2}),
        ("ConvTranspose2d", (4, 6, 3), {"padding_mode": "reflect"}),
        ("GroupNorm", (3, 4), {}),
        ("Unflatten", (1, (2, "x")), {}),
        ("Unflatten", (1, 3), {}),
        ("Embedding", (3, 4), {"padding_idx": 3}),
        ("HuberLoss", (), {"delta": "1"}),
        ("MultiheadAttention", (0, 1), {}),
        ("Bilinear", (0, 1, 1), {}),
        ("Hardtanh", (1.0, -1.0), {}),
        ("MultiMarginLoss", (3,), {}),
        ("TripletMarginLoss", (-1.0,), {}),
    ],
)
def test_constructor_errors(name, args, kwargs):
    with pytest.raises((ValueError, TypeError, AssertionError)) as theirs:
        getattr(torch.nn, name)(*args, **kwargs)
    with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value))):
        getattr(nn, name)(*args, **kwargs)


@needs_torch
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("BatchNorm1d", (4,)), ("BatchNorm2d", (2, 4)), ("BatchNorm3d", (2, 4)), ("InstanceNorm2d", (2, 4)),
        ("InstanceNorm1d", (2, 3, 5)),
    ],
)  # fmt: skip
def test_normalization_input_errors(name, x):
    mine, theirs = pair(name, (4,), {"affine": True})
    with pytest.raises(ValueError) as expected:
        theirs(torch.zeros(x))
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        mine(tg.zeros(x))


@needs_torch
def test_deprecated_reduction_arguments():
    for arguments in ({"size_average": False}, {"reduce": False}, {"size_average": True}, {"reduce": True}):
        with pytest.warns(UserWarning, match="please use reduction=") as mine:
            reduction = nn.MSELoss(**arguments).reduction
        with pytest.warns(UserWarning) as theirs:
            assert reduction == torch.nn.MSELoss(**arguments).reduction
        assert str(mine[0].message) == str(theirs[0].message)


@needs_torch
def test_embedding_from_pretrained():
    table = values(4, 3)
    mine = nn.Embedding.from_pretrained(table, padding_idx=1, max_norm=1.0)
    theirs = torch.nn.Embedding.from_pretrained(to_torch(table), padding_idx=1, max_norm=1.0)
    assert repr(mine) == repr(theirs)
    assert not mine.weight.requires_grad
    numbers = integers(4, 6)
    assert_close(mine(numbers), theirs(to_torch(numbers)), 2e-5)
    assert_close(mine.weight, theirs.weight, 2e-5)  # max_norm writes into the table


# --- initial values ----------------------------------------------------------------------------------------------

INITS = [
    ("uniform_", (-1.0, 2.0)), ("normal_", (1.0, 0.5)), ("constant_", (3.0,)), ("ones_", ()), ("zeros_", ()),
    ("xavier_uniform_", (2.0,)), ("xavier_normal_", ()), ("kaiming_uniform_", (0.3,)),
    ("kaiming_normal_", (0, "fan_out", "relu")), ("trunc_normal_", ()), ("trunc_normal_", (0.0, 1.0, 1.5, 3.0)),
    ("trunc_normal_", (0.5, 0.02, 0.4, 0.6)), ("orthogonal_", ()), ("orthogonal_", (1.5,)), ("sparse_", (0.4,)),
    ("eye_", ()),
]  # fmt: skip


@needs_torch
@pytest.mark.parametrize(("name", "args"), INITS, ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_init(name, args, shape):
    mine, theirs = nn.Parameter(tg.empty(shape)), torch.nn.Parameter(torch.empty(shape))
    tg.manual_seed(5)
    assert getattr(nn.init, name)(mine, *args) is mine
    torch.manual_seed(5)
    getattr(torch.nn.init, name)(theirs, *args)
    assert mine.is_leaf
    assert mine.requires_grad
    assert_close(mine, theirs, 1e-5 if name == "orthogonal_" else 1e-6)


@needs_torch
def test_init_of_many_dimensions():
    for name in ("kaiming_uniform_", "xavier_normal_", "orthogonal_"):
        mine, theirs = tg.empty(4, 3, 2, 2), torch.empty(4, 3, 2, 2)
        tg.manual_seed(5)
        getattr(nn.init, name)(mine)
        torch.manual_seed(5)
        assert_close(mine, getattr(torch.nn.init, name)(theirs), 1e-5)
    for shape in ((4, 2, 3), (4, 2, 3, 3), (4, 2, 3, 3, 3)):
        assert_close(
            nn.init.dirac_(tg.empty(shape), groups=2), torch.nn.init.dirac_(torch.empty(shape), groups=2), 2e-5
        )


@needs_torch
def test_init_errors_and_warnings():
    for gain in ("relu", "tanh", "linear", "conv_transpose3d", "sigmoid", "selu", "leaky_relu"):
        assert nn.init.calculate_gain(gain) == torch.nn.init.calculate_gain(gain)
    assert nn.init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)
    cases = [
        ("calculate_gain", ("swish",)), ("calculate_gain", ("leaky_relu", "x")), ("xavier_uniform_", (3,)),
        ("kaiming_uniform_", ((2, 2), 0, "fan_up")), ("eye_", (3,)), ("dirac_", (3,)), ("dirac_", ((3, 2, 2), 2)),
        ("orthogonal_", (3,)), ("sparse_", (3, 0.1)),
    ]  # fmt: skip
    for name, args in cases:
        make = (lambda lib, a: (lib.empty(a[0]), *a[1:])) if name != "calculate_gain" else (lambda lib, a: a)
        with pytest.raises(ValueError) as theirs:
            getattr(torch.nn.init, name)(*make(torch, args))
        with pytest.raises(ValueError, match=re.escape(str(theirs.value))):
            getattr(nn.init, name)(*make(tg, args))
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        nn.init.kaiming_uniform_(tg.empty(0, 2))
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        nn.init.trunc_normal_(tg.empty(2), mean=5.0, a=1.9)
    with pytest.warns(FutureWarning, match=r"`nn.init.normal` is now deprecated in favor of `nn.init.normal_`"):
        nn.init.normal(tg.empty(2))


@needs_torch
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_a_mean_over_ignored_targets_is_zero(loss, dtype):
    """The mean itself is nan; also in the gradient's own graph, and for one of several samples."""
    numbers = np.random.default_rng(0).standard_normal((2, 4, 5)).astype("float32")
    targets = np.array([[-100] * 4, [0, 1, -100, 3]])
    found = []
    for lib in (tg, torch):
        function = getattr(lib.nn.functional, loss)
        x = lib.tensor(numbers).to(getattr(lib, dtype)).requires_grad_()
        y = lib.tensor(targets)
        once = lib.autograd.grad(function(x[0], y[0]), x, create_graph=True)[0]
        losses = lib.vmap(function)(x, y)
        found.append([v.detach().float().numpy() for v in (once, losses, lib.autograd.grad(losses.sum(), x)[0])])
    for ours, theirs in zip(*found, strict=True):
        rtol = 2.0**-6 if dtype == "bfloat16" else 1e-5  # of 8 bits, rounded after each of several steps
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)
