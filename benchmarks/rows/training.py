"""Complete training steps: forward, loss, `zero_grad`, backward, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

from benchmarks.rows import Place, Row, drawn, models, placed, whole


def training(make_model, make_batch, make_optimizer, clip: float | None = None, autocast: str = ""):
    """Returns the build function of a row, which compares the first step's gradients and the losses of three steps.

    `autocast` is the dtype for mixed precision. The entry `model` of the sizes has the sizes of the model.
    """

    def build(torch, model: Mapping[str, Any] = MappingProxyType({}), **sizes):
        torch.manual_seed(0)
        network, (x, y) = placed(make_model(torch, **model)), make_batch(torch, **sizes)
        optimizer, function = make_optimizer(torch, network.parameters()), torch.nn.CrossEntropyLoss()

        def loss_of_batch():
            output = network(x)
            return function(output.view(-1, output.shape[-1]), y)

        def step():
            with torch.autocast(Place.device, getattr(torch, autocast)) if autocast else nullcontext():
                loss = loss_of_batch()
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.step()
            return loss

        def results():
            losses = [step()]
            gradients = [parameter.grad.clone() for parameter in network.parameters()]
            return [*losses, step(), step(), *gradients]

        return step, results

    return build


def xor(torch):
    """Returns the four rows of the XOR table."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    return placed(x), placed(torch.tensor([0, 1, 1, 0]))


def digits(torch, batch: int, shape: tuple = (1, 28, 28)):
    """Returns images and their classes."""
    return drawn(torch, batch, *shape), whole(torch, 10, batch)


def text(torch, batch: int, length: int, characters: int = 65):
    """Returns pieces of text, and the character after each position."""
    numbers = whole(torch, characters, batch, length + 1)
    return numbers[:, :-1].contiguous(), numbers[:, 1:].reshape(-1)


def adam_over(torch, tensors: int, rows: int, columns: int):
    """One Adam step over `tensors` parameters."""
    parameters = [torch.nn.Parameter(drawn(torch, rows, columns, seed=i)) for i in range(tensors)]
    for i, parameter in enumerate(parameters):
        parameter.grad = drawn(torch, rows, columns, seed=100 + i)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def results():
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    return optimizer.step, results


def sgd(torch, parameters):
    """Plain SGD."""
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(torch, parameters):
    """SGD with momentum and weight decay, as for ResNets."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)


def adam(torch, parameters):
    """Adam, as for small networks."""
    return torch.optim.Adam(parameters, lr=1e-3)


def adamw(torch, parameters):
    """AdamW, as for transformers."""
    return torch.optim.AdamW(parameters, lr=1e-3)


ROWS = [
    Row("XOR 2-8-2, batch 4, SGD", training(lambda torch: models.mlp(torch, 2, 8, 2), xor, sgd), is_small_model=True),
    Row(
        "MLP 784-128-10, batch 32, SGD",
        training(models.mlp, digits, sgd),
        {"batch": 32, "shape": (784,)},
        is_small_model=True,
    ),
    Row("MNIST ConvNet, batch 64, Adam", training(models.convnet, digits, adam), {"batch": 64}, {"batch": 8}, 1e-3),
    Row("MNIST ViT, batch 64, AdamW", training(models.vit, digits, adamw), {"batch": 64}, {"batch": 4}, 1e-3),
    Row(
        "ResNet-18 32×32, batch 32, SGD",
        training(models.resnet18, digits, momentum),
        {"batch": 32, "shape": (3, 32, 32)},
        {"batch": 2, "shape": (3, 32, 32)},
        # In float32, some inputs of ReLUs fall on the other side of 0, and batch norm amplifies this: the gradients of
        # both libraries differ by up to 0.07 from those in float64.
        0.2,
    ),
    Row(
        "GPT 4×128, context 64, batch 12, AdamW",
        training(models.gpt, text, adamw, clip=1.0),
        {"batch": 12, "length": 64},
        {"batch": 2, "length": 64},
        1e-3,
    ),
    Row(
        "LSTM characters, 32×64, Adam",
        training(models.lstm, text, adam, clip=1.0),
        {"batch": 32, "length": 64},
        {"batch": 4, "length": 16},
        1e-3,
    ),
    Row(
        "Adam over 10 M parameters",
        adam_over,
        {"tensors": 20, "rows": 512, "columns": 1000},
        {"tensors": 20, "rows": 8, "columns": 1000},
    ),
]
