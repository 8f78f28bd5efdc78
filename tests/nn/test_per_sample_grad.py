"""`call_for_per_sample_grads`: the gradients of each sample, beside PyTorch's."""

import importlib

import numpy as np
import pytest

import tensorgrad
from tests.support.alike import alike, error

MODELS = {
    "linear": lambda nn: (nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)), (5, 6)),
    "sequences": lambda nn: (nn.Linear(6, 4), (5, 3, 6)),
    "convolution": lambda nn: (
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)),
        (3, 2, 4, 4),
    ),
    "normalized": lambda nn: (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), (4, 6)),
    "instances": lambda nn: (nn.Sequential(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True)), (4, 2, 7)),
}


def of(torch):
    return importlib.import_module(f"{torch.__name__}.nn.utils._per_sample_grad").call_for_per_sample_grads


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", MODELS)
def test_each_samples_gradients(name, reduction):
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    found = []
    for library in (tensorgrad, torch):
        library.manual_seed(0)
        model, shape = MODELS[name](library.nn)
        model.double()
        if name == "linear":
            model[0].bias.requires_grad_(False)
        x = library.tensor(np.random.default_rng(0).normal(size=shape))
        result = of(library)(model, loss_reduction=reduction)(x)
        getattr(result.square(), reduction)().backward()
        assert all(p.grad is None for p in model.parameters())
        found.append([result.detach().numpy(), *(p.grad_sample.numpy() for p in model.parameters() if p.requires_grad)])
    for mine, theirs in zip(*found, strict=True):
        assert mine.shape == theirs.shape and np.allclose(mine, theirs, rtol=1e-5, atol=1e-6)  # same weights to 1e-7


@alike
def test_words_and_a_given_size(torch):
    torch.manual_seed(1)
    words, layer = torch.nn.Embedding(7, 3), torch.nn.Linear(3, 2)
    of(torch)(words)(torch.tensor([[1, 2], [2, 2], [0, 6]])).square().sum().backward()
    of(torch)(layer, batch_size=2, loss_reduction="mean")(torch.arange(6.0).reshape(2, 3)).sum().backward()
    return words.weight.grad_sample, layer.weight.grad_sample, layer.bias.grad_sample


def test_a_batch_that_is_not_first():
    """PyTorch takes the argument, and then looks for the samples first."""
    layer = tensorgrad.nn.Linear(3, 2)
    x = tensorgrad.arange(24.0).reshape(4, 2, 3) / 10
    result = of(tensorgrad)(layer, batch_first=False)(x)
    result.square().sum().backward()
    found, layer.weight.grad_sample, layer.bias.grad_sample = layer.weight.grad_sample, None, None
    swapped = of(tensorgrad)(layer)(x.transpose(0, 1))
    swapped.square().sum().backward()
    assert np.allclose(result.detach().numpy(), swapped.detach().numpy().swapaxes(0, 1))
    assert found.shape == (2, 2, 3) and np.allclose(found.numpy(), layer.weight.grad_sample.numpy())


@alike
def test_what_is_refused(torch):
    call, layer = of(torch), torch.nn.Linear(2, 2)
    found = [
        error(call, layer, loss_reduction="none"), error(call, torch.nn.functional.relu),
        error(call, layer, batch_size=0), error(call, layer, batch_size=2.0), error(call(layer)),
        error(call(layer), torch.ones(2, 2), torch.ones(3, 2)), error(call(layer, batch_size=3), torch.ones(2, 2)),
    ]  # fmt: skip
    call(layer)(torch.ones(3, 2)).sum().backward()
    return found, error(call, layer)[:60]
