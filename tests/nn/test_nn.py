"""Modules and layers against PyTorch: the same seed gives the same weights, outputs, gradients, names and text."""

import copy
import gc
import pickle
import re
import warnings
import weakref
from collections import OrderedDict

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


# --- parameters and the module's members ----------------------------------------------------------------------------


def test_parameter():
    data = tg.ones(2, 2)
    p = nn.Parameter(data)
    assert isinstance(p, tg.Tensor)
    assert p.requires_grad
    assert p.is_leaf
    with tg.no_grad():
        p[0, 0] = 5.0
    assert data[0, 0] == 5.0
    assert repr(p).startswith("Parameter containing:\ntensor([[5., 1.],")
    assert type(p + 1) is tg.Tensor
    assert type(p.detach()) is tg.Tensor
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    with pytest.raises(RuntimeError, match="nly Tensors of floating point"):
        nn.Parameter(tg.tensor([1]))
    assert nn.Parameter(tg.tensor([1]), requires_grad=False).dtype == tg.int64


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies(copied):
    p = nn.Parameter(tg.ones(2), requires_grad=False)
    q = copied(p)
    assert type(q) is nn.Parameter
    assert not q.requires_grad
    assert q.tolist() == [1.0, 1.0]

    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.shared = model[0]
    model[0].register_forward_hook(_nothing)
    other = copied(model)
    assert repr(other) == repr(model)
    assert other.shared is other[0]
    assert other[0].weight is other[0]._parameters["weight"]
    assert other[0].weight is not model[0].weight
    assert other[0].weight.tolist() == model[0].weight.tolist()
    # the copy's tables belong to the copy
    other[0]._parameters["weight"] = q
    assert other[0].weight is q
    assert model[0].weight is not q
    assert len(other[0]._forward_hooks) == 1


def _nothing(*args):
    return None


def test_members_are_registered():
    m = nn.Module()
    m.w = nn.Parameter(tg.ones(1))
    m.sub = nn.Linear(1, 1)
    m.plain = tg.ones(1)
    m.register_buffer("b", tg.zeros(1))
    m.register_buffer("t", tg.zeros(1), persistent=False)
    m.c = nn.Buffer(tg.zeros(1))
    m.d = nn.Buffer(tg.zeros(1), persistent=False)
    m.register_parameter("none", None)
    assert [n for n, _ in m.named_parameters()] == ["w", "sub.weight", "sub.bias"]
    assert [n for n, _ in m.named_buffers()] == ["b", "t", "c", "d"]
    assert list(m.state_dict()) == ["w", "b", "c", "sub.weight", "sub.bias"]
    assert m.none is None
    assert "plain" not in m._buffers

    m.b = tg.ones(1)  # a buffer stays one
    assert m._buffers["b"] is m.b
    m.w = None
    assert m._parameters["w"] is None
    m.sub = None
    assert list(m.state_dict()) == ["b", "c"]
    m.sub = nn.ReLU()
    m.plain = nn.Parameter(tg.ones(1))  # what was plain becomes a parameter
    assert "plain" in m._parameters
    del m.plain, m.sub, m.b, m.t
    for name in ("plain", "sub", "b", "t"):
        assert not hasattr(m, name)
        assert name not in m.__dict__


def test_tables_written_directly_are_seen():
    """Code that knows PyTorch's insides writes into the tables; attributes must follow."""
    m = nn.Linear(2, 2)
    w, p = m.weight, nn.Parameter(tg.zeros(2, 2))
    m._parameters["weight"] = p
    assert m.weight is p
    del m._parameters["weight"]  # as weight normalisation does, to put a computed tensor there
    assert not hasattr(m, "weight")
    m.weight = w * 2
    assert m.weight.grad_fn is not None
    assert "weight" not in m._parameters
    m._parameters.update(weight=p)
    assert m.weight is p
    assert m._parameters.pop("weight") is p
    assert m._parameters.pop("weight", 3) == 3
    assert not hasattr(m, "weight")
    m._parameters = {"other": p}
    assert m.other is p
    assert not hasattr(m, "bias")
    m._parameters.clear()
    assert not hasattr(m, "other")
    assert m._parameters.setdefault("a", p) is p
    assert m.a is p
    m._parameters["forward"] = p  # what the class has comes first
    assert callable(m.forward)
    del m.__dict__["a"]  # somebody removed just the mirror
    assert m.a is p


def test_modules_cloned_by_their_dictionaries():
    """As meta-learning code clones a module: parameters that are not leaves, in a copy of the dictionary."""
    m = nn.Linear(2, 2)
    clone = m.__new__(type(m))
    clone.__dict__ = m.__dict__.copy()
    clone._parameters = clone._parameters.copy()
    for name, p in m._parameters.items():
        clone._parameters[name] = p * 2
    assert clone.weight.grad_fn is not None
    assert m.weight.grad_fn is None
    clone(tg.ones(1, 2)).sum().backward()
    assert m.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_shallow_copies_have_their_own_tables():
    m = nn.Linear(2, 2)
    by_hand = m.__new__(type(m))
    by_hand.__dict__ = m.__dict__.copy()
    for other in (copy.copy(m), by_hand):
        assert other.weight is m.weight
        p = nn.Parameter(tg.zeros(2, 2))
        other.weight = p
        assert other.weight is other._parameters["weight"] is p
        assert m.weight is m._parameters["weight"] is not p


@needs_torch
def test_registration_errors():
    def attempts(lib, m):
        p, t = lib.nn.Parameter(lib.ones(1)), lib.ones(1)
        yield lambda: m.register_parameter("weight.x", p)
        yield lambda: m.register_parameter("", p)
        yield lambda: m.register_parameter("forward", p)
        yield lambda: m.register_parameter("x", t)
        yield lambda: m.register_parameter(3, p)
        yield lambda: m.register_parameter("x", p * 2)
        yield lambda: m.register_buffer("x.y", t)
        yield lambda: m.register_buffer("weight", t)
        yield lambda: m.register_buffer("x", [1])
        yield lambda: m.register_buffer(3, t)
        yield lambda: m.add_module("x", t)
        yield lambda: m.add_module("x.y", m)
        yield lambda: m.add_module("", m)
        yield lambda: m.add_module("training", m)
        yield lambda: m.add_module(3, m)
        yield lambda: setattr(m, "weight", t)
        yield lambda: setattr(m, "weight", m)
        yield lambda: m.nothing
        yield lambda: m.get_submodule("a.b")
        yield lambda: m.get_submodule("weight")
        yield lambda: m.get_parameter("training")
        yield lambda: m.get_parameter("x")
        yield lambda: m.get_buffer("weight")
        yield lambda: m.set_submodule("", m)
        yield lambda: m.set_submodule("x", t, strict=True)
        yield lambda: m.set_submodule("x", m, strict=True)
        yield lambda: m.set_submodule("weight", m)
        yield lambda: m.train("yes")
        yield lambda: m.to(lib.int64)
        yield lambda: m.load_state_dict([1])
        yield lambda: lib.nn.Module(1)
        yield lambda: lib.nn.Module(x=1)
        yield lambda: lib.nn.Module()(1)
        yield lambda: delattr(m, "nothing")

    for mine, theirs in zip(attempts(tg, nn.Linear(1, 1)), attempts(torch, torch.nn.Linear(1, 1)), strict=True):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises(type(expected.value)) as got:
            mine()
        short = [re.sub(r"(torch|tensorgrad)[\w.]*\.(\w+)", r"\2", str(e.value)) for e in (got, expected)]
        assert short[0] == short[1]


def test_assignment_before_init():
    class Late(nn.Module):
        def __init__(self, what):
            self.x = what

    for what, text in ((nn.Parameter(tg.ones(1)), "parameters"), (nn.Linear(1, 1), "module")):
        with pytest.raises(AttributeError, match=f"cannot assign {text} before Module.__init__"):
            Late(what)


def test_attributes_before_init():
    """Plain attributes may come first, even tensors; multiple inheritance works."""

    class Mixed(nn.Module):
        def __init__(self):
            self.early = 3
            super().__init__()

    assert Mixed().early == 3

    class Other:
        def hello(self):
            return "hello"

    class Both(nn.Module, Other):
        pass

    assert Both().hello() == "hello"

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    assert Wrapper(nn.Linear(2, 3)).out_features == 3


@needs_torch
def test_traversal():
    def build(lib):
        shared = lib.nn.Linear(1, 1)
        m = lib.nn.Sequential(shared, lib.nn.Sequential(shared, lib.nn.BatchNorm1d(1)))
        m.tied = shared.weight
        m.nothing = lib.nn.ReLU()
        m.nothing = None
        return m

    mine, theirs = build(tg), build(torch)
    for call in (
        lambda m: [n for n, _ in m.named_parameters()],
        lambda m: [n for n, _ in m.named_parameters(prefix="x", recurse=False)],
        lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
        lambda m: [n for n, _ in m.named_buffers()],
        lambda m: [n for n, _ in m.named_modules()],
        lambda m: [n for n, _ in m.named_modules(remove_duplicate=False, prefix="y")],
        lambda m: [n for n, _ in m.named_children()],
        lambda m: [type(x).__name__ for x in m.modules()],
        lambda m: [type(x).__name__ for x in m.children()],
        lambda m: len(list(m.parameters())),
        lambda m: len(list(m.buffers())),
        lambda m: list(m.state_dict(prefix="p.")),
        lambda m: [k for k in dir(m) if k in ("tied", "0", "nothing", "weight")],
        repr,
    ):
        assert call(mine) == call(theirs)
    assert mine.get_submodule("1.1") is mine[1][1]
    assert mine.get_parameter("1.0.weight") is mine[0].weight
    assert mine.get_buffer("1.1.running_mean") is mine[1][1].running_mean
    mine.set_submodule("1.1", nn.ReLU())
    assert isinstance(mine[1][1], nn.ReLU)


@needs_torch
def test_repr_of_nested_modules():
    def build(n):
        class Net(n.Module):
            def __init__(self):
                super().__init__()
                self.a = n.Sequential(OrderedDict(conv=n.Conv2d(1, 2, 3, bias=False), act=n.ReLU(inplace=True)))
                self.b = n.ModuleList([n.Linear(1, 1), n.Linear(1, 1), n.ReLU()])
                self.c = n.ModuleDict({"x": n.Dropout(), "y": n.ModuleList()})
                self.d = n.MultiheadAttention(4, 2)

            def extra_repr(self):
                return "one\ntwo"

        return Net()

    assert repr(build(nn)) == repr(build(torch.nn))


# --- state -----------------------------------------------------------------------------------------------------------


@needs_torch
def test_load_state_dict_errors():
    def build(n):
        return n.Sequential(n.Linear(2, 3), n.BatchNorm1d(3))

    def attempts(lib):
        state = build(lib.nn).state_dict()
        yield {**state, "0.weight": lib.zeros(3, 3), "extra": lib.zeros(1), "1.deep.er": lib.zeros(1)}
        yield {k: v for k, v in state.items() if k != "0.bias"}
        yield {**state, "0.bias": [1, 2, 3]}
        yield {**state, "1.running_mean": lib.zeros(1)}

    for mine, theirs in zip(attempts(tg), attempts(torch), strict=True):
        with pytest.raises(RuntimeError) as expected:
            build(torch.nn).load_state_dict(theirs)
        with pytest.raises(RuntimeError) as got:
            build(nn).load_state_dict(mine)
        assert str(got.value) == str(expected.value)

    state = build(nn).state_dict()
    assert repr(build(nn).load_state_dict(state)) == "<All keys matched successfully>"
    del state["0.bias"]
    state["new"] = tg.zeros(1)
    result = build(nn).load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias"]
    assert result.unexpected_keys == ["new"]


def test_load_state_dict():
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    weight = b.weight
    b.load_state_dict(a.state_dict())
    assert b.weight is weight
    assert b.weight.tolist() == a.weight.tolist()
    assert b.weight.data_ptr() != a.weight.data_ptr()
    assert b.weight.requires_grad

    state = {k: v.double() for k, v in a.state_dict().items()}
    b.load_state_dict(state)
    assert b.weight.dtype == tg.float32
    b.load_state_dict(state, assign=True)
    assert b.weight.dtype == tg.float64
    assert isinstance(b.weight, nn.Parameter)
    assert b.weight.requires_grad
    assert b.weight.data_ptr() == state["weight"].data_ptr()

    kept = a.state_dict(keep_vars=True)
    assert kept["weight"] is a.weight
    assert not a.state_dict()["weight"].requires_grad
    assert a.state_dict()["weight"].data_ptr() == a.weight.data_ptr()
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert list(a.state_dict({}, "x.")) == ["x.weight", "x.bias"]
    norm = nn.BatchNorm1d(2)
    old = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    norm.load_state_dict(old)  # a checkpoint from before that counter


def test_extra_state():
    class Counting(nn.Module):
        n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    a, b = nn.Sequential(Counting()), nn.Sequential(Counting())
    a[0].n = 5
    state = a.state_dict()
    assert state["0._extra_state"] == {"n": 5}
    b.load_state_dict(state)
    assert b[0].n == 5
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        b.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "0._extra_state"'):
        nn.Sequential(nn.ReLU()).load_state_dict(state)


def test_state_dict_hooks():
    m, seen = nn.Linear(1, 1), []
    m.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("pre", prefix, keep)))
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: state.update({prefix + "more": 1}))
    m.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: state.pop(prefix + "more"))
    m.register_load_state_dict_post_hook(lambda module, keys: seen.append(("post", keys.missing_keys)))
    outer = nn.Sequential(m)
    state = outer.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0.more"]
    outer.load_state_dict(state)
    assert seen == [("pre", "0.", False), ("post", [])]
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        m.state_dict()
    handle = nn.ReLU()._register_load_state_dict_pre_hook(lambda *args: seen.append(len(args)))
    handle.remove()


@needs_torch
def test_init_from_torch():
    def build(n):
        m = n.Sequential(n.Conv2d(1, 2, 3), n.BatchNorm2d(2), n.Flatten(), n.Linear(2, 3))
        m.register_buffer("hidden", (tg if n is nn else torch).zeros(2), persistent=False)
        return m

    theirs, mine = build(torch.nn), build(nn)
    theirs(torch.randn(4, 1, 3, 3))
    theirs.hidden += 1
    assert mine.init_from_torch(theirs) is mine
    assert_same_state(mine, theirs)
    assert mine.hidden.tolist() == [1.0, 1.0]
    x = values(2, 1, 3, 3)
    assert_close(mine.eval()(x), theirs.eval()(to_torch(x)), 2e-5)
    theirs[3].weight.data.zero_()  # a copy, not shared memory
    assert mine[3].weight.abs().sum() > 0
    half = nn.Linear(2, 2).init_from_torch(torch.nn.Linear(2, 2).bfloat16())
    assert half.weight.dtype == tg.float32
    with pytest.raises(
        RuntimeError, match=r"size mismatch for weight: copying a param with shape torch.Size\(\[4, 2\]\)"
    ):
        nn.Linear(2, 3).init_from_torch(torch.nn.Linear(2, 4))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias"'):
        nn.Linear(2, 3).init_from_torch(torch.nn.Linear(2, 3, bias=False))
    with pytest.raises(TypeError, match=r"init_from_torch expects a torch.nn.Module, got list"):
        nn.Linear(2, 3).init_from_torch([])


# --- changing the whole tree -----------------------------------------------------------------------------------------


def test_conversion():
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = m[0].weight
    m(tg.ones(3, 2)).sum().backward()
    assert m.double() is m
    assert m[0].weight is weight
    assert weight.dtype == weight.grad.dtype == tg.float64
    assert m[1].running_mean.dtype == tg.float64
    assert m[1].num_batches_tracked.dtype == tg.int64
    assert m(tg.ones(3, 2, dtype=tg.float64)).dtype == tg.float64
    m.to(tg.float32)
    assert weight.dtype == tg.float32
    m.to("cpu", tg.float64).to(tg.zeros(1))
    assert weight.dtype == tg.float32
    assert m.half()[0].bias.dtype == tg.float16
    assert m.float().cpu()[0].bias.dtype == tg.float32
    assert m.type(tg.float64)[1].num_batches_tracked.dtype == tg.float64
    assert weight.requires_grad
    assert weight.is_leaf


def test_meta():
    m = nn.Linear(2, 3, device="meta")
    assert m.weight.is_meta
    with pytest.raises(NotImplementedError, match=r"Please use torch.nn.Module.to_empty"):
        m.to("cpu")
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter in the checkpoint to a meta"):
        m.load_state_dict({"weight": tg.zeros(3, 2), "bias": tg.zeros(3)})
    m.to_empty(device="cpu")
    assert not m.weight.is_meta
    assert m.weight.shape == (3, 2)


def test_train_apply_grad():
    m = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout()))
    assert m.eval() is m
    assert not m[1][0].training
    assert m.train()[1][0].training
    order = []
    m.apply(lambda x: order.append(type(x).__name__))
    assert order == ["Linear", "Dropout", "Sequential", "Sequential"]
    assert m.requires_grad_(False) is m
    assert not m[0].weight.requires_grad
    m.requires_grad_()
    m(tg.ones(1, 2)).sum().backward()
    m.zero_grad(set_to_none=False)
    assert m[0].weight.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    m.zero_grad()
    assert m[0].weight.grad is None


# --- hooks -----------------------------------------------------------------------------------------------------------


def _forward_hooks(lib):
    log = []
    m = lib.nn.Linear(1, 1, bias=False)
    lib.nn.init.ones_(m.weight)
    m.register_forward_pre_hook(lambda mod, args: log.append("pre"))
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,), prepend=True)
    m.register_forward_pre_hook(lambda mod, args, kw: ((args[0] + 1,), kw), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, out: log.append((args[0].item(), out.item())))
    m.register_forward_hook(lambda mod, args, kw, out: out * 10, with_kwargs=True, prepend=True)
    handle = m.register_forward_hook(lambda mod, args, out: out + 0.5)
    log.append(m(lib.ones(1, 1)).item())
    handle.remove()
    handle.remove()
    log.append(m(input=lib.ones(1, 1)).item() if False else m(lib.ones(1, 1)).item())
    with m.register_forward_hook(lambda mod, args, out: -out):
        log.append(m(lib.ones(1, 1)).item())
    log.append(m(lib.ones(1, 1)).item())
    m._forward_hooks.clear()
    m._forward_pre_hooks.clear()
    log.append(m(lib.ones(1, 1)).item())
    m._forward_hooks[99] = lambda mod, args, out: out + 7
    log.append(m(lib.ones(1, 1)).item())
    return log


@needs_torch
def test_forward_hooks():
    assert _forward_hooks(tg) == _forward_hooks(torch)


def _always_called(lib):
    log = []

    class Failing(lib.nn.Module):
        def forward(self, x):
            raise KeyError("no")

    m = Failing()
    m.register_forward_hook(lambda *args: log.append("never"))
    m.register_forward_hook(lambda mod, args, out: log.append(("always", out)), always_call=True)
    m.register_forward_hook(lambda *args: 1 / 0, always_call=True)
    with pytest.raises(KeyError), pytest.warns(UserWarning, match="silenced as another error was raised in forward"):
        m(1)
    m = lib.nn.ReLU()
    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple of"):
        m(lib.ones(1))
    return log


@needs_torch
def test_hooks_that_are_always_called():
    assert _always_called(tg) == _always_called(torch)


def _backward_hooks(lib, hooks_module):
    log = []

    def show(grads):
        return [None if g is None else g.tolist() for g in grads]

    inner = lib.nn.Linear(2, 1, bias=False)
    lib.nn.init.ones_(inner.weight)
    m = lib.nn.Sequential(inner, lib.nn.Tanh())
    m.register_full_backward_hook(lambda mod, gi, go: log.append(("hook", show(gi), show(go))))
    inner.register_full_backward_hook(lambda mod, gi, go: None if gi[0] is None else (gi[0] * 2,))
    inner.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    x = lib.zeros(1, 2, requires_grad=True)
    m(x).sum().backward()
    log += [x.grad.tolist(), inner.weight.grad.tolist()]
    with pytest.warns(UserWarning, match="Full backward hook is firing when gradients are computed with respect to"):
        m(lib.zeros(1, 2)).sum().backward()  # no input requires grad: the hook still runs, without input gradients
    with lib.no_grad():
        m(x)
    handle = hooks_module.register_module_full_backward_hook(lambda mod, gi, go: log.append(type(mod).__name__))
    m(x).sum().backward()
    handle.remove()
    m(x).sum().backward()

    class Two(lib.nn.Module):
        def forward(self, a, n, b):
            return a * b, "text", b * n

    two = Two()
    two.register_full_backward_hook(lambda mod, gi, go: log.append(("two", show(gi), show(go))))
    a, b = lib.tensor([2.0], requires_grad=True), lib.tensor([3.0])
    outs = two(a, 5, b)
    outs[0].sum().backward()
    log.append(a.grad.tolist())

    bad = lib.nn.ReLU()
    bad.register_full_backward_hook(lambda mod, gi, go: (None, None))
    with pytest.raises(
        RuntimeError, match="Backward hook returned an invalid number of grad_input, got 2, but expected 1"
    ):
        bad(x).sum().backward()
    with pytest.raises(
        RuntimeError, match="Cannot use both regular backward hooks and full backward hooks on a single"
    ):
        bad.register_backward_hook(print)
    return log


@needs_torch
def test_backward_hooks():
    import torch.nn.modules.module as theirs

    import tensorgrad.nn.module_hooks as mine

    assert _backward_hooks(tg, mine) == _backward_hooks(torch, theirs)


def test_regular_backward_hook():
    m, seen = nn.Tanh(), []
    m.register_backward_hook(lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    m(tg.zeros(1, requires_grad=True)).sum().backward()
    assert seen == [([1.0], [1.0])]


def test_global_hooks():
    from tensorgrad.nn import module_hooks as hooks

    log = []
    handles = [
        hooks.register_module_forward_pre_hook(lambda m, args: log.append(("pre", type(m).__name__))),
        hooks.register_module_forward_hook(lambda m, args, out: log.append(("post", type(m).__name__))),
        hooks.register_module_parameter_registration_hook(lambda m, name, p: log.append(name)),
        hooks.register_module_buffer_registration_hook(lambda m, name, p: log.append(name)),
        hooks.register_module_module_registration_hook(lambda m, name, sub: nn.Tanh() if name == "1" else None),
    ]
    m = nn.Sequential(nn.BatchNorm1d(1, track_running_stats=False), nn.ReLU())
    m(tg.ones(2, 1))
    for handle in handles:
        handle.remove()
    m(tg.ones(2, 1))
    assert log == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
        ("pre", "Sequential"), ("pre", "BatchNorm1d"), ("post", "BatchNorm1d"), ("pre", "Tanh"), ("post", "Tanh"),
        ("post", "Sequential"),
    ]  # fmt: skip


# --- containers ------------------------------------------------------------------------------------------------------


def _containers(n, lib):
    """One story for both libraries, told in text."""
    log = []
    s = n.Sequential(n.Linear(1, 2), n.ReLU(), n.Linear(2, 1))
    log += [repr(s[1:]), repr(s[-1]), len(s), repr(s + n.Sequential(n.Tanh())), repr(s * 2)]
    s.append(n.Tanh()).insert(0, n.Flatten()).extend([n.Sigmoid()])
    log.append(repr(s))
    s[1] = n.Linear(1, 2, bias=False)
    del s[0]
    del s[1:3]
    log += [repr(s), repr(s.pop(-1)), repr(s), list(s.state_dict())]
    s += n.Sequential(n.ReLU())
    s *= 2
    log.append(repr(s))
    named = n.Sequential(OrderedDict([("first", n.Linear(1, 1)), ("second", n.ReLU())]))
    log += [repr(named), repr(named[0]), repr(named.first), repr(named[:1])]

    items = n.ModuleList([n.Linear(1, 1), n.Linear(1, 1), n.ReLU()])
    log += [repr(items), repr(items[:2]), len(items), repr(items[-1]), repr(items + [n.Tanh()])]
    items.insert(1, n.Tanh())
    items.append(n.Sigmoid())
    items += [n.ReLU()]
    items[0] = n.Identity()
    del items[2]
    log += [repr(items), repr(items.pop(0)), [type(m).__name__ for m in items], repr(n.ModuleList())]

    d = n.ModuleDict({"a": n.Linear(1, 1), "b": n.ReLU()})
    d["c"] = n.Tanh()
    d.update([("d", n.Sigmoid())])
    log += [repr(d), list(d), list(d.keys()), [k for k, _ in d.items()], len(d), "a" in d, repr(d.pop("a"))]
    del d["b"]
    log += [repr(d), [type(m).__name__ for m in d.values()]]
    d.clear()
    log.append(repr(d))

    p = n.ParameterList([lib.ones(2), n.Parameter(lib.zeros(1, 3)), "text"])
    p.append(lib.ones(1))
    p[0] = lib.zeros(4)
    p += [lib.ones(1)]
    log += [repr(p), len(p), [x if isinstance(x, str) else x.tolist() for x in p[1:3]], list(p.state_dict())]
    q = n.ParameterDict({"b": lib.ones(2), "a": lib.zeros(1)})
    q["c"] = 3
    log += [repr(q), list(q), list(q.keys()), "a" in q, q.get("x", 5), q.setdefault("d", lib.ones(1)).tolist()]
    log += [q.pop("a").tolist(), q.popitem()[0], list(q), len(q), list(q.copy()), list(q.state_dict())]
    log += [list(q | n.ParameterDict({"z": lib.ones(1)})), list(q.fromkeys(["u"], lib.ones(1))), list(reversed(q))]
    q.clear()
    log.append(len(q))

    for attempt in (
        lambda: s[9], lambda: items[9], lambda: s + 3, lambda: s * "x", lambda: s * 0, lambda: s.insert(9, n.ReLU()),
        lambda: s.insert(0, 3), lambda: items.extend(3), lambda: d.update(3), lambda: d.update([3]), lambda: p(),
        lambda: d.update([(1, 2, 3)]), lambda: p[9], lambda: q[3], lambda: q(1), lambda: d["nothing"],
        lambda: p.extend(lib.ones(2)), lambda: d.update({"keys": n.ReLU()}),
    ):  # fmt: skip
        try:
            attempt()
        except Exception as error:
            log.append((type(error).__name__, re.sub(r"'(torch|tensorgrad)\.\S*'", "", str(error))))
    return log


@needs_torch
def test_containers():
    for mine, theirs in zip(_containers(nn, tg), _containers(torch.nn, torch), strict=True):
        assert mine == theirs


# --- utilities -------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clip_grad(norm_type):
    def run(lib):
        ps = [lib.ones(2, requires_grad=True), lib.ones(3, requires_grad=True), lib.ones(1, requires_grad=True)]
        ((ps[0] * 3).sum() + (ps[1] * lib.tensor([1.0, -5.0, 2.0])).sum()).backward()
        norm = lib.nn.utils.clip_grad_norm_(iter(ps), 2.0, norm_type)
        lib.nn.utils.clip_grad_norm_(ps[0], 100.0)
        clipped = [p.grad.tolist() for p in ps[:2]]
        lib.nn.utils.clip_grad_value_(ps, 0.5)
        return norm, clipped, [p.grad.tolist() for p in ps[:2]]

    mine, theirs = run(tg), run(torch)
    assert_close(mine[0], theirs[0], 1e-6)
    for m, t in zip(mine[1:], theirs[1:], strict=True):
        for a, b in zip(m, t, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_clip_grad_edges():
    with pytest.warns(UserWarning, match="is an empty generator"):
        assert nn.utils.clip_grad_norm_((p for p in ()), 1.0) == 0
    w = tg.ones(1, requires_grad=True)
    w.grad = tg.tensor([float("inf")])
    with pytest.raises(
        RuntimeError, match=r"The total norm of order 2.0 for gradients from `parameters` is non-finite"
    ):
        nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    with pytest.warns(FutureWarning, match="deprecated in favor of"):
        nn.utils.clip_grad_norm([w], 1.0)


def test_parameters_as_a_vector():
    m = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(m.parameters())
    assert vector.shape == (9,)
    nn.utils.vector_to_parameters(tg.arange(9.0), m.parameters())
    assert m.bias.tolist() == [6.0, 7.0, 8.0]
    assert m.weight[1].tolist() == [2.0, 3.0]
    assert m.weight.requires_grad
    with pytest.raises(TypeError, match=r"expected torch.Tensor, but got"):
        nn.utils.vector_to_parameters([1], m.parameters())


# --- what a model costs ----------------------------------------------------------------------------------------------


def test_models_are_freed_by_reference_counting():
    gc.collect()
    gc.disable()
    try:
        m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.MultiheadAttention(2, 1))
        m[0].register_forward_hook(_nothing)
        m.register_load_state_dict_pre_hook(_nothing)
        m[0](tg.ones(1, 2)).sum().backward()
        dead = [weakref.ref(m), weakref.ref(m[0].weight)]
        del m
        assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


def test_no_warnings_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2))
        nn.CrossEntropyLoss()(m(values(2, 1, 3, 3)), tg.tensor([0, 1])).backward()
        m.load_state_dict(m.state_dict())
