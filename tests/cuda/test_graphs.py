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


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_a_learning_rate_on_the_gpu_can_be_changed(device):
    w = torch.ones(3, device=device, requires_grad=True)
    rate = torch.tensor(0.5, device=device)
    optimizer = torch.optim.Adam([w], lr=rate, capturable=True)
    w.grad = torch.ones(3, device=device)
    optimizer.step()
    np.testing.assert_allclose(w.tolist(), [0.5] * 3, rtol=1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    rate.fill_(0.25)
    graph.replay()
    np.testing.assert_allclose(w.tolist(), [0.25] * 3, rtol=1e-5)
    assert optimizer.state[w]["step"].item() == 2
    optimizer.step()  # without the graph, it goes on from there
    assert optimizer.state[w]["step"].item() == 3


def test_a_step_that_is_not_capturable_raises(device):
    w = torch.ones(3, device=device, requires_grad=True)
    w.grad = torch.ones(3, device=device)
    for name in ("Adam", "RMSprop", "RAdam"):
        optimizer = getattr(torch.optim, name)([w], lr=0.1)
        with pytest.raises(
            RuntimeError, match=rf"Attempting CUDA graph capture of step\(\) for an instance of {name} but"
        ):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                optimizer.step()
    optimizer = torch.optim.Adam([w], lr=0.1, capturable=True)
    with pytest.warns(UserWarning, match="but step\\(\\) is running without CUDA graph capture"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_scaled_losses(device):
    def run(captured):
        w = torch.ones(4, device=device, requires_grad=True)
        x = torch.zeros(4, device=device)
        optimizer = torch.optim.AdamW([w], lr=0.1, capturable=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
        graph, found = None, []
        for value in (1.0, 2.0, 3.0, float("inf"), 1.0, 2.0):
            x.fill_(value)

            def step():
                optimizer.zero_grad(set_to_none=True)
                scaler.scale((w * x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()

            if not captured or len(found) < 2:
                step()
            else:
                if graph is None:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        step()
                graph.replay()
            found.append((*w.tolist(), scaler.get_scale(), optimizer.state[w]["step"].item()))
        return found

    eagerly, replayed = run(False), run(True)
    np.testing.assert_allclose(replayed, eagerly, rtol=1e-6)
    assert eagerly[3][:4] == eagerly[2][:4] and eagerly[3][4] < eagerly[2][4]
    sgd = torch.optim.SGD([torch.ones(2, device=device, requires_grad=True)], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(sgd.param_groups[0]["params"][0].sum()).backward()
    with (
        pytest.raises(RuntimeError, match="GradScaler.step waits for the GPU"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        scaler.step(sgd)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_a_convolutional_network(device):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3),
            nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        ).to(device)  # fmt: skip

    same_training(make, adamw, batches(5, (4, 1, 8, 8), 4, device), tolerance=1e-4)


class SmallGPT(nn.Module):
    def __init__(self, characters=11, width=16, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.embedding, self.places = nn.Embedding(characters, width), nn.Embedding(8, width)
        self.norm, self.attend, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width), nn.Dropout(dropout)
        )
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, tokens):
        n, length = tokens.shape
        x = self.embedding(tokens) + self.places(torch.arange(length, device=tokens.device))
        q, k, v = self.attend(self.norm(x)).view(n, length, 3 * self.heads, -1).transpose(1, 2).chunk(3, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, length, -1))
        return self.head(x + self.mlp(x))


def language(model, x, y):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    return loss


def texts(n, device):
    rng = np.random.default_rng(0)
    return [tuple(torch.tensor(rng.integers(0, 11, (3, 8)), device=device) for _ in range(2)) for _ in range(n)]


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
def test_a_small_gpt(autocast, device):
    def make():
        torch.manual_seed(0)
        return SmallGPT().to(device)

    def loss_of(model, x, y):
        if autocast is None:
            return language(model, x, y)
        with torch.autocast("cuda", dtype=getattr(torch, autocast)):
            return language(model, x, y)

    same_training(make, adamw, texts(5, device), loss_of, 1e-4 if autocast is None else 1e-2)


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_an_lstm(device):
    def make():
        torch.manual_seed(0)
        return Characters().to(device)

    same_training(make, adamw, texts(5, device), language, 1e-4)


def test_clipped_gradients(device):
    def loss_of(model, x, y):
        return F.cross_entropy(model(x) * 10, y)

    class Clipped(torch.optim.SGD):
        def step(self, closure=None):
            torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.5)
            return super().step(closure)

    same_training(lambda: mlp(device), lambda p, captured: Clipped(p, lr=0.1), batches(6, (8, 12), 4, device), loss_of)
