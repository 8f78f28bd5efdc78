"""CUDA graphs: a replay does what the recorded step would do, and what cannot be recorded raises."""


import numpy as np

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


def same_training(make, optimizer_of, data, loss_of=cross_entropy, tolerance=1e-5):
    models = make(), make()
    found = [
        train(model, optimizer_of(model.parameters()), loss_of, data)
        for model, train in zip(models, (eager, graphed), strict=True)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=tolerance, atol=tolerance)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        np.testing.assert_allclose(b.detach().cpu().numpy(), a.detach().cpu().numpy(), rtol=tolerance, atol=tolerance)
    assert len(set(found[1])) == len(data)


def test_a_training_step(device):
    same_training(
        lambda: mlp(device), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), batches(6, (8, 12), 4, device)
    )


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
        first, second = mlp(device), mlp(device)[3]
        head = nn.Linear(4, 16, device=device)
        x = torch.randn(8, 12, device=device)
        if graph:
            first, head = torch.cuda.make_graphed_callables(
                (first, head),
                ((torch.zeros(8, 12, device=device),), (torch.zeros(8, 4, device=device, requires_grad=True),)),
            )
        results = []
        for scale in (1, 2):
            for p in (*first.parameters(), *head.parameters(), *second.parameters()):
                p.grad = None
            y = second(head(first(x * scale)))
            y.square().sum().backward()
            results += [y, *(p.grad for p in (*first.parameters(), *head.parameters(), *second.parameters()))]
            results = (
                [r.detach().cpu().numpy().copy() for r in results]
                if not isinstance(results[0], np.ndarray)
                else [r if isinstance(r, np.ndarray) else r.detach().cpu().numpy().copy() for r in results]
            )
        return results

    for got, expected in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
