"""Modules and training steps on the GPU, with torch on the CPU as the oracle; none may wait for the GPU unasked."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

import tensorgrad as tg
from tests.conformance import moduledb


@pytest.fixture(autouse=True)
def full_precision():
    """Convolutions round their operands to TF32 otherwise, as in PyTorch."""
    with tg.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


MODULES = [
    "Linear", "Bilinear", "Embedding", "EmbeddingBag", "Conv1d", "Conv2d", "ConvTranspose2d", "Conv3d", "MaxPool2d",
    "AvgPool2d", "AdaptiveAvgPool2d", "LPPool2d", "BatchNorm1d", "BatchNorm2d", "LayerNorm", "GroupNorm",
    "InstanceNorm2d", "RMSNorm", "LocalResponseNorm", "ReLU", "GELU", "SiLU", "Softplus", "Hardswish", "PReLU", "GLU",
    "Softmax", "LogSoftmax", "MultiheadAttention", "TransformerEncoderLayer", "RNN", "LSTM", "GRU", "LSTMCell",
    "MSELoss", "L1Loss", "CrossEntropyLoss", "NLLLoss", "BCEWithLogitsLoss", "KLDivLoss", "SmoothL1Loss",
    "TripletMarginLoss", "CTCLoss", "CosineEmbeddingLoss", "PixelShuffle", "Upsample", "Unfold", "Fold",
    "ReflectionPad2d", "Dropout",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    problems = moduledb.unexplained(f"nn.{name}", moduledb.check(f"nn.{name}", most=1))
    assert not problems, "\n".join(problems)


# --- whole programs --------------------------------------------------------------------------------------------------


def perceptron(lib):
    return lib.nn.Sequential(lib.nn.Linear(8, 16), lib.nn.ReLU(), lib.nn.Linear(16, 4)), (8,)


def convolutional(lib):
    nn = lib.nn
    # Without a bias: batch norm leaves it a gradient of rounding errors, from which AdamW makes steps of full size.
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 4),
    ), (3, 8, 8)


def transformer(lib):
    nn = lib.nn
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Flatten(), nn.Linear(96, 4)), (
        6, 16,
    )  # fmt: skip


def trained(lib, program, optimizer, device, context=None):
    """Three steps: the losses (taken to the host at the end), and the parameters after them."""
    lib.manual_seed(0)
    model, shape = program(lib)
    model.to(device)
    inputs = np.random.default_rng(0).standard_normal((5, *shape)).astype("float32")
    x, target = lib.tensor(inputs).to(device), lib.tensor([0, 1, 2, 3, 1]).to(device)
    steps = optimizer(lib.optim, model.parameters())

    def run():
        losses = []
        for _ in range(3):
            loss = lib.nn.functional.cross_entropy(model(x), target)
            steps.zero_grad()
            loss.backward()
            lib.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            steps.step()
            losses.append(loss.detach())
        return losses

    losses = run()
    if context is not None:  # everything that waits once (compiling, first state of the optimizer) is over
        with context():
            losses += run()
    else:
        losses += run()
    return [loss.item() for loss in losses], [p.detach().cpu().numpy() for p in model.parameters()]


OPTIMIZERS = {
    "sgd": lambda optim, p: optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda optim, p: optim.AdamW(p, lr=1e-3),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("program", [perceptron, convolutional, transformer], ids=lambda p: p.__name__)
def test_training_copies_nothing_to_the_host(program, optimizer, nothing_copied):
    expected = trained(torch, program, OPTIMIZERS[optimizer], "cpu")
    found = trained(tg, program, OPTIMIZERS[optimizer], "cuda", nothing_copied)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-4, atol=2e-4)
    for theirs, ours in zip(expected[1], found[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-3)


def test_a_copy_to_the_host_is_noticed(nothing_copied):
    x = tg.ones(3, device="cuda")
    with nothing_copied():
        for wait in (
            lambda: x.cpu(),
            lambda: x.sum().item(),
            lambda: x.tolist(),
            lambda: bool(x[0] > 0),
            lambda: x.nonzero(),
        ):
            with pytest.raises(RuntimeError, match="synchroniz"):
                wait()
    assert x.cpu().tolist() == [1, 1, 1]
