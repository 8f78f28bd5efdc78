"""What must work in WebAssembly, with the same numbers as elsewhere. It runs there, without any package but NumPy.

python -m tests.wasm.programs        prints each program's result as JSON
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorgrad as torch
import tensorgrad.nn.functional as F
from tensorgrad import nn
from tensorgrad.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parent.parent.parent
PROGRAMS: dict[str, Callable[[], Any]] = {}

# Modules that are about something else, or need a package.
ELSEWHERE = ("tensorgrad.kernels.compiled.", "tensorgrad.kernels.cuda", "tensorgrad.storage.cuda")


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def _message(function: Callable[[], Any]) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, make: Any, **options: Any) -> list[float]:
    optimizer, losses = make(model.parameters(), **options), []
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def modules_that_cannot_be_imported():
    found = []
    for each in pkgutil.walk_packages(torch.__path__, "tensorgrad.", onerror=lambda name: None):
        if not each.name.startswith(ELSEWHERE) and not each.name.endswith("__main__"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                message = _message(lambda name=each.name: importlib.import_module(name))
            if message != "no error" and "needs the package" not in message:
                found.append(f"{each.name}: {message}")
    return found


@program
def dtypes_of_indices():
    x = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    counts = torch.tensor([0, 2, 2, 1])
    made = [
        x.argmax(), x.argmin(1), x.argsort(), x.sort()[1], x.topk(2)[1], x.kthvalue(2)[1], x.max(1)[1], x.min(0)[1],
        x.median(1)[1], x.mode(1)[1], x.cummax(0)[1], x.cummin(1)[1], x.nonzero(), torch.count_nonzero(x),
        torch.bincount(counts), torch.searchsorted(torch.arange(4), counts), torch.bucketize(x, torch.arange(3.0)),
        *counts.unique(return_inverse=True, return_counts=True),
        torch.unique_consecutive(counts, return_counts=True)[1],
        torch.multinomial(torch.ones(4), 2), torch.randperm(4), torch.arange(3), counts.sum(), counts.int().cumsum(0),
        F.max_pool2d(torch.rand(1, 4, 4), 2, return_indices=True)[1], torch.where(x > 1)[0], counts.int().argmax(),
        F.adaptive_max_pool1d(torch.rand(1, 6), 2, return_indices=True)[1], torch.tril_indices(3, 3),
    ]  # fmt: skip
    return [str(each.dtype) for each in made]


@program
def random_numbers():
    torch.manual_seed(0)
    own = torch.Generator().manual_seed(1)
    drawn = [
        torch.rand(3), torch.randn(20), torch.randn(3), torch.randperm(7), torch.randint(0, 9, (4,)),
        torch.rand(2, generator=own), torch.bernoulli(torch.full((5,), 0.5)), torch.multinomial(torch.ones(5), 3),
        torch.empty(4).exponential_(), torch.distributions.Gamma(2.0, 1.0).sample((2,)),
    ]  # fmt: skip
    state = torch.get_rng_state()
    first = torch.rand(2)
    torch.set_rng_state(state)
    return [each.tolist() for each in [*drawn, first, torch.rand(2)]]


@program
def gradients():
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    ops = [
        torch.exp, torch.sin, torch.tanh, F.gelu, F.softmax, torch.sqrt, torch.cumsum, torch.logsumexp, torch.erf,
        torch.lgamma, lambda x: x @ x.T, lambda x: x[:, 1:3], lambda x: torch.linalg.inv(x[:, :4]),
        lambda x: torch.fft.rfft(x).abs(), lambda x: F.layer_norm(x, (5,)), lambda x: x.sort()[0],
    ]  # fmt: skip
    made = []
    for op in ops:
        out = op(x.abs() + 0.5, 1) if op in (F.softmax, torch.cumsum, torch.logsumexp) else op(x.abs() + 0.5)
        made.append(torch.autograd.grad((out * out).sum(), x)[0].sum().item())
    jacobian = torch.func.jacrev(lambda x: x**2)(torch.arange(3.0))
    each = torch.func.vmap(torch.func.grad(torch.sin))(torch.arange(3.0))
    return made, jacobian.tolist(), each.tolist()


@program
def xor():
    torch.manual_seed(0)
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    return _trained(model, x, torch.tensor([0, 1, 1, 0]), 300, torch.optim.SGD, lr=0.5)[::50], model(x).argmax(
        1
    ).tolist()


@program
def convolutional_network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(100, 10),
    )
    x, y = torch.randn(8, 1, 12, 12), torch.randint(0, 10, (8,))
    return _trained(model, x, y, 5, torch.optim.Adam)


class _Small(nn.Module):
    """A transformer that reads letters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.block(self.embed(x), src_mask=mask, is_causal=True)).transpose(1, 2)


@program
def transformer():
    torch.manual_seed(0)
    x = torch.randint(0, 20, (4, 9))
    return _trained(_Small(), x[:, :-1], x[:, 1:], 5, torch.optim.AdamW, lr=1e-2)


@program
def recurrent_networks():
    torch.manual_seed(0)
    found = []
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        layer = kind(4, 6, 2, batch_first=True, bidirectional=True)
        layer(torch.randn(3, 5, 4))[0].square().sum().backward()
        found.append([p.grad.abs().sum().item() for p in layer.parameters()])
    return found


@program
def optimizers():
    found = {}
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        torch.manual_seed(0)
        found[name] = _trained(
            nn.Linear(3, 2), torch.randn(6, 3), torch.arange(6) % 2, 4, getattr(torch.optim, name), lr=0.1
        )
    return found


@program
def saved_and_loaded():
    torch.manual_seed(0)
    model, folder = nn.Linear(3, 2), tempfile.mkdtemp()
    path = os.path.join(folder, "model.pt")
    torch.save({"model": model.state_dict(), "steps": [1, 2]}, path)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = [torch.load(path)["model"], torch.load(buffer)]
    os.unlink(path)
    os.rmdir(folder)
    return [torch.equal(each["weight"], model.weight) for each in loaded]


@program
def data_loading():
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    return [batch[0].tolist() for batch in DataLoader(data, batch_size=4, shuffle=True)]


@program
def deep_graphs():
    """A chain of 20,000 nodes, and a backward pass within a backward pass within …"""
    from tensorgrad.utils.checkpoint import checkpoint

    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.0

    def nested(x: torch.Tensor, depth: int) -> torch.Tensor:
        return x * 2 if depth == 0 else checkpoint(nested, x, depth - 1, use_reentrant=True)

    (y + nested(x, 30)).sum().backward()
    return x.grad.tolist()


@program
def linear_algebra():
    torch.manual_seed(0)
    a = torch.randn(5, 5, dtype=torch.float64)
    spd = a @ a.T + torch.eye(5, dtype=torch.float64)
    return [
        torch.linalg.svdvals(a).tolist(), torch.linalg.inv(a).sum().item(), torch.linalg.eigvalsh(spd).tolist(),
        torch.linalg.cholesky(spd).sum().item(), torch.linalg.solve(spd, a).sum().item(), torch.linalg.det(a).item(),
        torch.fft.fft(a).abs().sum().item(), torch.einsum("ij,kj->ik", a, a).sum().item(),
    ]  # fmt: skip


@program
def pictures_and_profiles():
    from tensorgrad.viz import render

    x = torch.ones(2, requires_grad=True)
    with torch.profiler.profile() as profile:
        y = (x * 2).sum()
    return type(render(y)).__name__, len(profile.key_averages()) > 0, torch.get_num_threads() >= 1


@program
def tutorial():
    sys.path.insert(0, str(ROOT / "docs" / "tutorial"))
    run = importlib.import_module("run")
    scope: dict[str, Any] = {"__name__": "tutorial"}
    for page in run.chapters():
        run.run(page, scope)
    return [page.stem for page in run.chapters()]


def main() -> None:
    """Prints the name and the result of each program, one to a line."""
    for name, function in PROGRAMS.items():
        try:
            made = {"result": function()}
        except Exception:
            made = {"error": traceback.format_exc()}
        print(json.dumps([name, made]), flush=True)


if __name__ == "__main__":
    main()
