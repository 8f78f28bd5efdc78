"""Modules of torch.nn: recorded with their backward passes, and run again on other inputs."""

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture import record
from tensorgrad.capture.values import tensors
from tests.capture.compare import bits


def floats(*shape):
    return lambda: torch.randn(*shape)


def classes(count, *shape):
    return lambda: torch.randint(count, shape)


MODULES = {  # how it is made, and its inputs
    **{
        name: (getattr(nn, name), floats(3, 4))
        for name in (
            "ReLU", "GELU", "SiLU", "Mish", "ELU", "SELU", "CELU", "Softplus", "Softsign", "Tanh", "Sigmoid",
            "LogSigmoid", "Hardswish", "Hardtanh", "Hardsigmoid", "LeakyReLU", "PReLU", "ReLU6", "Softshrink",
            "Hardshrink", "Tanhshrink", "Identity", "Flatten", "Dropout", "AlphaDropout", "FeatureAlphaDropout",
            "RReLU",
        )
    },
    "Softmax": (lambda: nn.Softmax(-1), floats(3, 4)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), floats(3, 4)),
    "GLU": (nn.GLU, floats(3, 4)),
    "Linear": (lambda: nn.Linear(4, 5), floats(3, 4)),
    "Bilinear": (lambda: nn.Bilinear(4, 3, 2), floats(5, 4), floats(5, 3)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 3), floats(2, 2, 7)),
    "Conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), floats(2, 2, 7, 7)),
    "Conv3d": (lambda: nn.Conv3d(1, 2, 2), floats(1, 1, 3, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), floats(1, 2, 4, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), floats(2, 3, 6, 6)),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2), floats(2, 3, 6, 6)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), floats(2, 3, 5, 5)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(2), floats(2, 3, 5)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), floats(1, 2, 4, 4)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), floats(3, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2, momentum=None), floats(3, 2, 4, 4)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(2, track_running_stats=True), floats(3, 2, 4, 4)),
    "LayerNorm": (lambda: nn.LayerNorm(4), floats(3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), floats(3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), floats(3, 4, 5)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), floats(2, 4, 3)),
    "Embedding": (lambda: nn.Embedding(7, 3, padding_idx=0), classes(7, 2, 4)),
    "RNN": (lambda: nn.RNN(4, 3, bidirectional=True), floats(5, 2, 4)),
    "LSTM": (lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.5), floats(5, 2, 4)),
    "GRU": (lambda: nn.GRU(4, 3, batch_first=True), floats(2, 5, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), floats(2, 4)),
    "GRUCell": (lambda: nn.GRUCell(4, 3), floats(2, 4)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2, dropout=0.1), *[floats(3, 2, 4)] * 3),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8), floats(3, 2, 4)),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(4, 2, 8), floats(3, 2, 4), floats(5, 2, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), floats(1, 2, 3, 3)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), floats(1, 4, 3, 3)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), floats(1, 2, 3, 3)),
    "Fold": (lambda: nn.Fold((4, 5), (2, 2)), floats(1, 8, 12)),
    "Unfold": (lambda: nn.Unfold((2, 2)), floats(1, 2, 4, 5)),
    "CosineSimilarity": (nn.CosineSimilarity, floats(3, 4), floats(3, 4)),
    "PairwiseDistance": (nn.PairwiseDistance, floats(3, 4), floats(3, 4)),
    "MSELoss": (nn.MSELoss, floats(3, 4), floats(3, 4)),
    "L1Loss": (nn.L1Loss, floats(3, 4), floats(3, 4)),
    "SmoothL1Loss": (nn.SmoothL1Loss, floats(3, 4), floats(3, 4)),
    "HuberLoss": (nn.HuberLoss, floats(3, 4), floats(3, 4)),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, floats(3, 4), lambda: torch.rand(3, 4)),
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), floats(5, 3), classes(3, 5)),
    "NLLLoss": (nn.NLLLoss, floats(5, 3), classes(3, 5)),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), floats(5, 3), lambda: torch.rand(5, 3)),
    "GaussianNLLLoss": (lambda: nn.GaussianNLLLoss(), floats(5, 3), floats(5, 3), lambda: torch.rand(5, 3)),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, floats(5), lambda: torch.randint(2, (5,)) * 2 - 1),
    "TripletMarginLoss": (nn.TripletMarginLoss, floats(5, 3), floats(5, 3), floats(5, 3)),
    "MultiMarginLoss": (nn.MultiMarginLoss, floats(5, 3), classes(3, 5)),
}  # fmt: skip
# They read values, which the graph then expects: how many elements are negative, the smallest class.
CHECKED = {"RReLU", "MultiMarginLoss"}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_forward_and_backward(name, training):
    make, *inputs = MODULES[name]
    torch.manual_seed(0)
    module = make().train(training)

    def program(*args):
        result = module(*args)
        loss = sum((t * t).sum() for t in tensors(result))
        if loss.requires_grad:
            loss.backward()
        return result

    def values(seed):
        torch.manual_seed(seed)
        made = [make() for make in inputs]
        return [t.requires_grad_() if t.is_floating_point() else t for t in made]

    def run(program, args):
        module.zero_grad()
        module.load_state_dict(state)
        torch.manual_seed(3)
        result = program(*args)
        return bits([result, module.state_dict(), [p.grad for p in module.parameters()], [a.grad for a in args]])

    state = {k: v.clone() for k, v in module.state_dict().items()}
    expected = [run(program, values(seed)) for seed in (1, 2)]
    recordings = []

    def recorded(*args):
        recordings.append(record(program, *args))
        return recordings[0].result

    assert run(recorded, values(1)) == expected[0]
    assert run(recordings[0], values(1)) == expected[0]
    if name not in CHECKED:
        assert run(recordings[0], values(2)) == expected[1]
