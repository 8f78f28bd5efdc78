"""The models of the examples leave as ONNX files, exported programs and TorchScript archives, with the same results."""

import importlib.util
import io
import sys

import numpy as np
import pytest

import tensorgrad as tg
from tests.docs.test_examples import EXAMPLES
from tests.onnx.compare import NEEDS
from tests.support.alike import of_torch

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch, that its formats are old


@pytest.fixture
def example(monkeypatch):
    """Imports the file of an example."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def load(name):
        spec = importlib.util.spec_from_file_location(f"example_{name.replace('/', '_')}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


class Adapted(tg.nn.Module):
    """The network of maml.py, which a function applies."""

    def __init__(self, file):
        super().__init__()
        self.network, self.predict = file.Network(), file.predict

    def forward(self, x):
        return self.predict(self.network.weights, x)


class Code(tg.nn.Module):
    """The halves of the network of vae.py, without the random numbers between them."""

    def __init__(self, vae):
        super().__init__()
        self.vae = vae

    def forward(self, x):
        mean, log_variance = self.vae.encoder(x).chunk(2, dim=1)
        return self.vae.decoder(mean), mean, log_variance


# name -> what makes the model of its file, and the arguments
MODELS = {
    "diffusion": lambda e: (e.Denoiser(64, 10, 32), (tg.randn(3, 64), tg.tensor([0, 5, 9]), tg.tensor([1, 2, 3]))),
    "gan": lambda e: (
        tg.nn.Sequential(e.make_generator(64, 16), e.make_discriminator(64, 16)),
        (tg.randn(2, e.NOISE),),
    ),
    "gpt": lambda e: (e.GPT(40, 16, 32, 2, 2), (tg.randint(0, 40, (2, 9)),)),
    "laplace": lambda e: (e.Network(4), (tg.randn(5, 1),)),
    "lstm": lambda e: (e.Speller(width=16), (tg.randint(0, 27, (2, 7)),)),
    "maml": lambda e: (Adapted(e), (tg.randn(2, 5, 1),)),
    "mnist/cnn": lambda e: (e.make_network(8, 4), (tg.rand(2, 1, 8, 8),)),
    "mnist/vit": lambda e: (e.ViT(8, 2, 32, 4, 2), (tg.rand(2, 1, 8, 8),)),
    "neural_ode": lambda e: (tg.nn.Sequential(e.LearnedLaw(8), e.TrueLaw()), (tg.randn(4, 2),)),
    "pinn": lambda e: (e.Position(8), (tg.rand(4, 1),)),
    "quantize": lambda e: (e.Network(8, 4), (tg.rand(2, 1, 8, 8),)),
    "rl": lambda e: (e.make_network(2, 8), (tg.randn(3, 4),)),
    "serve": lambda e: (e.Transformer(1, 32), (tg.arange(9, -e.LENGTH + 9, -1).clamp(min=0).repeat(2, 1),)),
    "train_digits": lambda e: (e.make_network(8), (tg.rand(2, 1, 8, 8),)),
    "vae": lambda e: (Code(e.VAE(64, 2, 32)), (tg.rand(3, 64),)),
    "xor": lambda e: (e.MLP(), (tg.rand(4, 2),)),
}


def flat(value):
    """The arrays of a result."""
    if isinstance(value, list | tuple):
        return [array for part in value for array in flat(part)]
    return [value.detach().numpy()]


def assert_same(found, expected):
    found, expected = flat(found), flat(expected)
    assert [(a.shape, a.dtype) for a in found] == [(b.shape, b.dtype) for b in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_examples_leave(name, example):
    torch = pytest.importorskip("torch", reason="reads the files")
    pytest.importorskip("onnxruntime", reason=NEEDS)
    tg.manual_seed(0)
    model, given = MODELS[name](example(name))
    expected = model.eval()(*given)
    same = [torch.from_numpy(t.numpy().copy()) for t in given]
    assert_same(tg.onnx.export(model, given, verbose=False)(*given), expected)
    program, archive = io.BytesIO(), io.BytesIO()
    tg.export.save(tg.export.export(model, given), program)
    tg.jit.trace(model, given).save(archive)
    program.seek(0)
    archive.seek(0)
    assert_same(of_torch(lambda: torch.export.load(program).module()(*same)), expected)
    assert_same(of_torch(lambda: torch.jit.load(archive)(*same)), expected)
