"""CUDA graphs: a replay does what the recorded step would do, and what cannot be recorded raises."""

import numpy as np
import pytest

import tensorgrad as torch

nn = torch.nn
F = torch.nn.functional


def mlp(device, *, dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 4)).to(device)


def batches(n, shape, classes, device):
    rng = np.random.default_rng(0)
    return [
        (
            torch.tensor(rng.standard_normal(shape).astype(np.float32), device=device),
            torch.tensor(rng.integers(0, classes, shape[0]), device=device),
        )
        for _ in range(n)
    ]


def eager(model, optimizer, loss_of, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def graphed(model, optimizer, loss_of, data, warm=2):
    """Trains with a graph: the first batches without it, on a side stream, as PyTorch's documentation shows."""
    x, y = (t.clone() for t in data[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    losses = []
    with torch.cuda.stream(side):
        losses += eager(model, optimizer, loss_of, data[:warm])
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
    for given, wanted in data[warm:]:
        x.copy_(given), y.copy_(wanted)
        graph.replay()
        losses.append(loss.item())
    return losses


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def momentum(parameters, captured):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters, captured):
    return torch.optim.AdamW(parameters, lr=0.01, capturable=captured)


def same_training(make, optimizer_of, data, loss_of=cross_entropy, tolerance=1e-5):
    models = make(), make()
    found = [
        train(model, optimizer_of(model.parameters(), train is graphed), loss_of, data)
        for model, train in zip(models, (eager, graphed), strict=True)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=tolerance, atol=tolerance)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        np.testing.assert_allclose(b.detach().cpu().numpy(), a.detach().cpu().numpy(), rtol=tolerance, atol=tolerance)
    assert len(set(found[1])) == len(data)


def test_a_training_step(device):
    same_training(lambda: mlp(device), momentum, batches(6, (8, 12), 4, device))


def test_work_is_recorded_not_run(device):
    x = torch.ones(3, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        x += 1
        y = x * 2
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [1] * 3
    for step in range(1, 3):
        graph.replay()
        assert x.tolist() == [1 + step] * 3 and y.tolist() == [2 + 2 * step] * 3


def test_graphed_callables(device):
    def run(graph):
        torch.manual_seed(1)
        first, second, last = mlp(device), nn.Linear(4, 16, device=device), nn.Linear(16, 4, device=device)
        x = torch.randn(8, 12, device=device)
        if graph:
            samples = torch.zeros(8, 12, device=device), torch.zeros(8, 4, device=device, requires_grad=True)
            first, second = torch.cuda.make_graphed_callables((first, second), tuple((s,) for s in samples))
        parameters = [p for part in (first, second, last) for p in part.parameters()]
        found = []
        for scale in (1, 2):
            for p in parameters:
                p.grad = None
            y = last(second(first(x * scale)))
            y.square().sum().backward()
            found += [t.detach().cpu().numpy().copy() for t in (y, *(p.grad for p in parameters))]
        return found

    for got, expected in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


# --- optimizers ------------------------------------------------------------------------------------------------------

ADAMS = [
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
]


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
@pytest.mark.parametrize(
    ("name", "settings"),
    [*ADAMS, *((name, {"lr": 0.01}) for name in ("NAdam", "Adamax", "RMSprop", "Rprop", "Adadelta"))],
)
def test_capturable_optimizers(name, settings, device):
    def optimizer(parameters, captured):
        return getattr(torch.optim, name)(parameters, capturable=captured, **settings)

    same_training(lambda: mlp(device), optimizer, batches(6, (8, 12), 4, device), tolerance=2e-5)
