"""Modules of torch.nn, and small models made of them."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import nn
from tests.capture.test_modules import MODULES
from tests.onnx.compare import check, operators

READS_VALUES = ("MultiMarginLoss",)
# The operator that has to appear, not what it could be made of.
PROPER = {
    "Linear": "Gemm", "Conv1d": "Conv", "Conv2d": "Conv", "Conv3d": "Conv", "ConvTranspose2d": "ConvTranspose",
    "MaxPool2d": "MaxPool", "AvgPool2d": "AveragePool", "BatchNorm1d": "BatchNormalization",
    "BatchNorm2d": "BatchNormalization", "LayerNorm": "LayerNormalization", "GroupNorm": "GroupNormalization",
    "RMSNorm": "RMSNormalization", "Embedding": "Gather", "RNN": "RNN", "LSTM": "LSTM", "GRU": "GRU",
    "LSTMCell": "LSTM", "GRUCell": "GRU", "Upsample": "Resize", "Softmax": "Softmax", "GELU": "Gelu", "ReLU": "Relu",
    "LogSoftmax": "LogSoftmax", "ELU": "Elu", "SELU": "Selu", "LeakyReLU": "LeakyRelu", "Hardswish": "HardSwish",
    "PReLU": "PRelu", "Mish": "Mish",
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in MODULES if n not in READS_VALUES])
def test_module(name):
    make, *inputs = MODULES[name]
    torch.manual_seed(0)
    module, args = make().eval(), tuple(make() for make in inputs)
    with torch.no_grad():
        for parameter in module.parameters():  # a product's bias of zeros is left out: test_folding.py
            if not parameter.any():
                parameter.normal_()
    exported = check(module, args, opset_version=23)
    if name in PROPER:
        assert PROPER[name] in operators(exported)
    found = {t.name for t in exported.model.graph.initializers}
    assert {n for n, _ in module.named_parameters()} <= found or name in ("Bilinear", "PReLU")


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.one = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = self.one(x).add_(x).relu_()
        return self.head(x.mean((2, 3)))


class Decoder(nn.Module):
    """A decoder whose cache of keys and values comes in and goes out."""

    def __init__(self, words=20, width=16, heads=2, layers=2, longest=64):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                "mlp": nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)),
            }) for _ in range(layers)
        )  # fmt: skip
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).bool())

    def forward(self, ids, cache=None):
        batch, count = ids.shape
        before = 0 if cache is None else cache[0][0].shape[2]
        x = self.words(ids) + self.places(torch.arange(before, before + count))
        kept = []
        for i, layer in enumerate(self.layers):
            q, k, v = layer["qkv"](layer["norm"](x)).split(x.shape[-1], 2)
            q, k, v = (t.view(batch, count, self.heads, -1).transpose(1, 2) for t in (q, k, v))
            if cache is not None:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            kept.append((k, v))
            scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
            hidden = ~self.mask[before : before + count, : before + count]
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            x = x + layer["out"]((weights @ v).transpose(1, 2).reshape(batch, count, -1))
            x = x + layer["mlp"](x)
        return self.head(x), kept


def test_resnet_of_any_size():
    model = ResNet().eval()
    exported = check(model, (torch.randn(2, 3, 32, 32),), (torch.randn(1, 3, 40, 24),),
                     dynamic_shapes=({0: "batch", 2: "height", 3: "width"},))  # fmt: skip
    assert operators(exported) == ["Conv", "Relu", "MaxPool", "Conv", "Add", "Relu", "ReduceMean", "Gemm"]
    assert "Identity" not in operators(exported)


def test_decoder_with_its_cache():
    torch.manual_seed(0)
    model = Decoder().eval()

    def ids(*shape):
        return torch.randint(0, 20, shape)

    def cache(batch, length):
        return [(torch.randn(batch, 2, length, 8), torch.randn(batch, 2, length, 8)) for _ in range(2)]

    check(model, (ids(2, 5),), (ids(1, 9),), (ids(3, 2),), dynamic_shapes={"ids": {0: "batch", 1: "time"}})
    of_cache = [({0: "batch", 2: "past"}, {0: "batch", 2: "past"}) for _ in range(2)]
    exported = check(
        model, (ids(2, 3), cache(2, 4)), (ids(1, 1), cache(1, 9)), (ids(2, 2), cache(2, 20)),
        dynamic_shapes={"ids": {0: "batch", 1: "time"}, "cache": of_cache},
    )  # fmt: skip
    tied = [t.name for t in exported.model.graph.initializers if t.array.shape == (20, 16)]
    assert len(tied) == 1


def test_training_mode():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5))
    model.train()
    before = model[1].running_mean.clone()
    x = torch.randn(4, 2, 5, 5)
    assert operators(torch.onnx.export(model, (x,))) == ["Conv"]
    assert model.training and model[2].training
    trained = torch.onnx.export(model, (x,), training=torch.onnx.TrainingMode.TRAINING)
    assert "RandomUniformLike" in operators(trained)
    np.testing.assert_array_equal(model[1].running_mean, before)  # recording ran it, and changed nothing
