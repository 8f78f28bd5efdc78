"""CUDA graphs: a replay does what the recorded step would do, and what cannot be recorded raises."""

import gc
import os
import threading

import numpy as np
import pytest

import tensorgrad as torch

emulated = pytest.mark.skipif(os.environ.get("DEVICE") != "emulator", reason="a GPU would not notice, or worse")
nn = torch.nn
F = torch.nn.functional


def recording():
    """A block whose work is recorded in a graph that nobody needs."""
    return torch.cuda.graph(torch.cuda.CUDAGraph())


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
        with (
            pytest.raises(
                RuntimeError, match=rf"Attempting CUDA graph capture of step\(\) for an instance of {name} but"
            ),
            recording(),
        ):
            optimizer.step()
    radam = torch.optim.RAdam([w], lr=0.1, capturable=True)
    with pytest.raises(NotImplementedError, match=r"RAdam\.step cannot be captured"), recording():
        radam.step()
    optimizer = torch.optim.Adam([w], lr=0.1, capturable=True)
    with pytest.warns(UserWarning, match="but step\\(\\) is running without CUDA graph capture"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
@pytest.mark.parametrize("name", ["SGD", "SGD with momentum", "AdamW"])
def test_scaled_losses(name, device):
    def run(captured):
        w = torch.ones(4, device=device, requires_grad=True)
        x = torch.zeros(4, device=device)
        if name == "AdamW":
            optimizer = torch.optim.AdamW([w], lr=0.1, capturable=True)
        else:
            optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9 if "momentum" in name else 0)
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
        graph, found = None, []

        def step():
            optimizer.zero_grad(set_to_none=True)
            scaler.scale((w * x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        for value in (1.0, 2.0, 3.0, float("inf"), 1.0, 2.0):
            x.fill_(value)
            if captured and len(found) == 2:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
            step() if graph is None else graph.replay()
            counted = [state["step"].item() for state in optimizer.state.values() if "step" in state]
            found.append((*w.tolist(), scaler.get_scale(), *counted))
        return found

    eagerly, replayed = run(False), run(True)
    np.testing.assert_allclose(replayed, eagerly, rtol=1e-6)
    assert eagerly[3][:4] == eagerly[2][:4] and eagerly[3][4] < eagerly[2][4]


def test_steps_that_cannot_be_skipped_in_a_graph(device):
    w = torch.ones(2, device=device, requires_grad=True)
    optimizer, scaler = torch.optim.Adagrad([w], lr=0.1), torch.amp.GradScaler("cuda")
    scaler.scale(w.sum()).backward()
    with pytest.raises(RuntimeError, match=r"GradScaler\.step waits for the GPU"), recording():
        scaler.step(optimizer)


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_a_convolutional_network(device):
    def make():
        torch.manual_seed(0)
        # A bias before a batch norm has no gradient but rounding errors, which Adam makes as large as any.
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        ).to(device)  # fmt: skip

    same_training(make, adamw, batches(5, (4, 1, 8, 8), 4, device), tolerance=1e-4)


class SmallGPT(nn.Module):
    def __init__(self, characters=11, width=16, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.embedding, self.places = nn.Embedding(characters, width), nn.Embedding(8, width)
        # Without a bias: the gradient of the keys' is nothing but rounding errors, which Adam makes as large as any.
        self.norm, self.attend = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width)
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


# --- random numbers --------------------------------------------------------------------------------------------------


def draws(x, generator=None):
    return [
        F.dropout(x, 0.5), torch.rand(5, device=x.device, generator=generator), F.dropout(x.t(), 0.3),
        torch.randn(4, device=x.device, generator=generator), torch.randint(0, 100, (7,), device=x.device),
        torch.bernoulli(torch.full((6,), 0.5, device=x.device)), torch.empty(3, device=x.device).exponential_(),
    ]  # fmt: skip


def test_replays_draw_the_numbers_of_a_program_without_graphs(device):
    x = torch.ones(64, 48, device=device)
    torch.cuda.manual_seed(3)
    expected = [[t.cpu().numpy() for t in draws(x)] for _ in range(4)]
    offset = torch.cuda.default_generators[0].get_offset()
    torch.cuda.manual_seed(3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = draws(x)
    assert torch.cuda.default_generators[0].get_offset() == 0  # nothing was drawn yet
    for step in range(3):
        graph.replay()
        for got, wanted in zip(made, expected[step], strict=True):
            np.testing.assert_array_equal(got.cpu().numpy(), wanted)
    for got, wanted in zip(draws(x), expected[3], strict=True):  # and the program goes on from there
        np.testing.assert_array_equal(got.cpu().numpy(), wanted)
    assert torch.cuda.default_generators[0].get_offset() == offset
    torch.cuda.manual_seed(3)
    graph.replay()
    np.testing.assert_array_equal(made[0].cpu().numpy(), expected[0][0])


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True")
def test_dropout_in_a_training_step(device):
    def trained(train):
        model = mlp(device, dropout=0.5)
        torch.cuda.manual_seed(5)
        train(model, adamw(model.parameters(), True), cross_entropy, batches(6, (8, 12), 4, device))
        return [p.detach().cpu().numpy() for p in model.parameters()]

    for got, expected in zip(trained(graphed), trained(eager), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_dropout_in_graphed_callables(device):
    layer = torch.cuda.make_graphed_callables(
        nn.Dropout(0.5), (torch.zeros(64, 64, device=device, requires_grad=True),)
    )
    x = torch.ones(64, 64, device=device, requires_grad=True)
    seen = []
    for _ in range(2):
        x.grad = None
        y = layer(x)
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.cpu().numpy(), y.detach().cpu().numpy())
        seen.append(y.detach().cpu().numpy().copy())
    assert (seen[0] != seen[1]).any() and 1500 < (seen[0] > 0).sum() < 2600


def test_generators_of_programs(device):
    g, graph = torch.Generator(device).manual_seed(1), torch.cuda.CUDAGraph()
    expected = [torch.rand(5, device=device, generator=g).tolist() for _ in range(2)]
    g.manual_seed(1)
    words = "Attempt to increase offset for a CUDA generator not in capture mode"
    with pytest.raises(RuntimeError, match=words), recording():
        torch.rand(5, device=device, generator=g)
    graph.register_generator_state(g)
    with torch.cuda.graph(graph):
        x = torch.rand(5, device=device, generator=g)
        for call in (lambda: g.manual_seed(2), g.get_state, lambda: torch.cuda.manual_seed(1)):
            with pytest.raises(RuntimeError, match=r"Cannot call CUDAGeneratorImpl::\w+ during"):
                call()
    for wanted in expected:
        graph.replay()
        assert x.tolist() == wanted


# --- what cannot be recorded -----------------------------------------------------------------------------------------

CANNOT = {
    "item": lambda x: x.sum().item(),
    "to the host": lambda x: x.cpu(),
    "if": lambda x: bool(x[0] > 0),
    "nonzero": lambda x: x.nonzero(),
    "a mask as an index": lambda x: x[x > 0],
    "from the host": lambda x: torch.ones(3).to(x.device),
    "tensor": lambda x: torch.tensor([1.0], device=x.device),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "stream.synchronize": lambda x: torch.cuda.current_stream().synchronize(),
    "stream.query": lambda x: torch.cuda.current_stream().query(),
    "event.synchronize": lambda x: torch.cuda.current_stream().record_event().synchronize(),
    "event.query": lambda x: torch.cuda.current_stream().record_event().query(),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_recorded_raises(name, device):
    x = torch.ones(3, device=device)
    graph = torch.cuda.CUDAGraph()
    words = "CUDA error: operation not permitted when stream is capturing\n"
    with pytest.raises(torch.AcceleratorError, match=words), torch.cuda.graph(graph):
        y = x * 2
        CANNOT[name](y)
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with torch.cuda.graph(graph):  # the failure left nothing behind
        y = x * 2
    graph.replay()
    assert y.tolist() == [2] * 3 and x.sum().item() == 3


def test_errors_name_the_op(device):
    x = torch.ones(3, device=device)
    for op in (lambda: x.nonzero(), lambda: x.masked_select(x > 0)):
        words = r"capturing\n\((nonzero|masked_select|index)"
        with pytest.raises(RuntimeError, match=words), recording():
            op()


def test_errors_of_programs_pass(device):
    with pytest.raises(KeyError), recording():
        raise KeyError
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_wrong_calls(device):
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="CUDA graphs must be captured on a non-default stream"):
        graph.capture_begin()
    for call in (graph.replay, graph.pool, graph.instantiate):
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            call()
    with pytest.raises(RuntimeError, match="without a preceding capture_begin"):
        graph.capture_end()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        with pytest.raises(RuntimeError, match="Unknown capture error mode"):
            graph.capture_begin(capture_error_mode="none")
        graph.capture_begin()
        x = torch.ones(2, device=device)
        with pytest.raises(RuntimeError, match="already owns a captured graph"):
            graph.capture_begin()
        with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(RuntimeError, match="must end on the same stream"):
            graph.capture_end()
        graph.capture_end()
    graph.replay()
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch.cuda.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="unless CUDAGraph was initialized with keep_graph"):
        graph.raw_cuda_graph()
    empty = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), torch.cuda.graph(empty):
        pass
    empty.replay()


def test_graphs_that_are_kept(device, tmp_path):
    x = torch.ones(2, device=device)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x += 1
    with pytest.raises(RuntimeError, match="until instantiate"):
        graph.raw_cuda_graph_exec()
    graph.instantiate()
    assert graph.raw_cuda_graph() and graph.raw_cuda_graph_exec()
    graph.replay()
    assert x.tolist() == [2, 2]
    debugged = torch.cuda.CUDAGraph()
    debugged.enable_debug_mode()
    with torch.cuda.graph(debugged):
        x += 1
    debugged.debug_dump(tmp_path / "graph.dot")
    assert "digraph" in (tmp_path / "graph.dot").read_text()
    debugged.replay()
    assert x.tolist() == [3, 3]


# --- memory, streams, indices ----------------------------------------------------------------------------------------


def test_memory_of_a_graph_is_its_own(device):
    x = torch.ones(1000, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inner = x * 2  # freed in the recording
        y = inner + 1
        del inner
        z = y * 3
    gc.collect()
    before = torch.cuda.memory_allocated()
    others = [torch.full((1000,), float(i), device=device) for i in range(20)]  # nothing of the graph's is given out
    graph.replay()
    assert (y == 3).all().item() and (z == 9).all().item()
    assert all((t == i).all().item() for i, t in enumerate(others))
    del others
    assert torch.cuda.memory_allocated() == before
    held = torch.cuda.memory_reserved()
    del y, z, graph
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held


def test_tensors_of_a_graph_outlive_it(device):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.ones(1000, device=device) * 3
    graph.replay()
    graph.reset()
    others = [torch.zeros(1000, device=device) for _ in range(10)]
    assert (x == 3).all().item() and len(others) == 10
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
    assert (y == 4).all().item()


def test_graphs_share_a_pool(device):
    pool = torch.cuda.graph_pool_handle()
    x = torch.ones(1000, device=device)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first, pool=pool):
        y = (x * 2) * 3
    with torch.cuda.graph(second, pool=first.pool()):
        z = (y + 1) * 2
    assert first.pool() == second.pool() == pool
    for _ in range(2):
        first.replay(), second.replay()
        assert (y == 6).all().item() and (z == 14).all().item()
    del first
    second.replay()
    assert (z == 14).all().item()


def test_copies_from_pinned_memory_read_it_at_each_replay(device):
    given, x = torch.ones(100, pin_memory=True), torch.zeros(100, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.copy_(given, non_blocking=True)
        back = (x * 2).to("cpu", non_blocking=True)
    for value in (3, 4):
        given.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert (back == 2 * value).all()
    del given
    gc.collect()
    graph.replay()
    torch.cuda.synchronize()
    assert (back == 8).all()


def test_other_streams_join_a_capture(device):
    x, side = torch.ones(10, device=device), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        y = x * 2
        side.wait_stream(here)
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing() and side.is_capturing()
            z = y + 1
        here.wait_stream(side)
        w = z * 2
    x.fill_(2)
    graph.replay()
    assert w.tolist() == [10] * 10
    with pytest.raises(RuntimeError, match="failed due to a previous error"), recording():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x * 2


class Nested(torch.autograd.Function):
    """Multiplies by 2; its backward runs another one within, and so on."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if not ctx.depth:
            return g * x, None
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            Nested.apply(inner, ctx.depth - 1).sum().backward()
        return inner.grad + 1, None


def test_backward_within_backward_stays_in_the_capture(device):
    """... though another thread continues it, beyond some depth."""
    x = torch.ones(3, device=device, requires_grad=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (slope,) = torch.autograd.grad(Nested.apply(x, 50).sum(), x)
    with torch.no_grad():
        x.fill_(7)
    graph.replay()
    assert slope.tolist() == [57] * 3


def test_replays_report_indices_out_of_bounds(device):
    table, index = torch.randn(5, 3, device=device), torch.tensor([0, 4], device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        F.embedding(index, table)
    graph.replay()
    torch.cuda.synchronize()
    index.fill_(7)
    graph.replay()
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 5"):
        torch.cuda.synchronize()
    graph.replay()
    with pytest.raises(IndexError, match="index 7"):
        torch.cuda.current_stream().synchronize(), graph.replay()


def test_unused_inputs_of_graphed_callables(device):
    samples = tuple(torch.ones(3, device=device, requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.cuda.make_graphed_callables(lambda x, y: x * 2, samples)
    double = torch.cuda.make_graphed_callables(lambda x, y: x * 2, samples, allow_unused_input=True)
    x, y = (torch.full((3,), 5.0, device=device, requires_grad=True) for _ in range(2))
    made = double(x, y)
    made.sum().backward()
    assert made.tolist() == [10] * 3 and x.grad.tolist() == [2] * 3 and y.grad is None
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(lambda x: x, (1,))
    hooked = nn.Linear(2, 2, device=device)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="Modules must not have hooks registered"):
        torch.cuda.make_graphed_callables(hooked, (torch.ones(1, 2, device=device),))
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="does not support the autocast caching"):
        torch.cuda.make_graphed_callables(lambda x: x, samples[:1])


def test_graphed_modules_evaluate_without_the_graph(device):
    model = torch.cuda.make_graphed_callables(
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(device), (torch.ones(64, 4, device=device),)
    )
    x = torch.ones(64, 4, device=device)
    assert (model(x) == 0).any().item()
    model.eval()
    np.testing.assert_allclose(model(x[:3]).tolist(), model[0](x[:3]).tolist(), rtol=1e-6)


# --- what the emulator notices ---------------------------------------------------------------------------------------


@emulated
def test_inputs_must_be_kept(device):
    x = torch.ones(1000, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    graph.replay()
    assert (y == 2).all().item()
    del x
    with pytest.raises(RuntimeError, match="a graph uses memory that was freed"):
        graph.replay()


@emulated
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_unsafe_calls_of_other_threads(mode, device):
    failed = []

    def other():
        try:
            torch.empty(123457, device=device)
        except RuntimeError as error:
            failed.append(str(error))

    torch.cuda.empty_cache()
    graph, wrong = torch.cuda.CUDAGraph(), None
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            x = torch.ones(54321, device=device)  # this thread's own calls are safe
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    except RuntimeError as error:
        wrong = str(error)
    if mode == "global":
        assert "operation not permitted when stream is capturing" in failed[0]
        assert "operation failed due to a previous error during capture" in wrong
    else:
        graph.replay()
        assert not failed and wrong is None and (x == 1).all().item()
