"""`nn.summary`, `utils.flop_counter` and `utils.module_tracker`: counts agree with torch, and nothing is modified."""

import threading
import warnings

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import nn
from tensorgrad.nn import call_hooks
from tensorgrad.rows import switches
from tensorgrad.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula
from tensorgrad.utils.module_tracker import ModuleTracker
from tensorgrad.viz import summary as model_summary
from tensorgrad.viz import summary_table
from tests.conftest import HAS_TORCH

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch's own, when one of its flags is read
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")


# --- models that both libraries run ----------------------------------------------------------------------------------


def perceptron(lib):
    return lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.ReLU(), lib.nn.Linear(8, 2)), (lib.ones(3, 4),)


def convolutions(lib):
    n = lib.nn
    layers = (
        n.Conv2d(3, 8, 3, padding=1, stride=2), n.BatchNorm2d(8), n.ReLU(), n.Conv2d(8, 4, 1),
        n.ConvTranspose2d(4, 3, 2, 2), n.Flatten(), n.Linear(192, 5),
    )  # fmt: skip
    return n.Sequential(*layers), (lib.ones(2, 3, 8, 8, requires_grad=True),)


def one_and_three_dimensions(lib):
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.three = lib.nn.Conv1d(2, 4, 3, dilation=2), lib.nn.Conv3d(1, 2, 2, bias=False)

        def forward(self, x, y):
            return self.one(x).sum() + self.three(y).sum()

    return Model(), (lib.ones(3, 2, 9, requires_grad=True), lib.ones(2, 1, 4, 4, 4, requires_grad=True))


def encoder(lib):
    layer = lib.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return layer, (lib.ones(2, 5, 16, requires_grad=True),)


def attention(lib):
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = lib.nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x, y):
            return self.attend(x, y, y, need_weights=False)[0]

    return Model(), (lib.ones(2, 5, 16, requires_grad=True), lib.ones(2, 7, 16, requires_grad=True))


def products(lib):
    class Model(lib.nn.Module):
        def forward(self, x):
            return lib.bmm(x, x.transpose(1, 2)).matmul(x) + lib.baddbmm(x, x @ x.mT, x) + lib.mm(x[0], x[1])

    return Model(), (lib.ones(2, 4, 4, requires_grad=True),)


def einsum(lib):
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(3, 4))

        def forward(self, x):
            return lib.einsum("bi,ki->bk", x, self.weight)

    return Model(), (lib.ones(2, 4, requires_grad=True),)


MODELS = (perceptron, convolutions, one_and_three_dimensions, encoder, attention, products, einsum)


def recurrent(lib, name):
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(lib.nn, name)(4, 6, 2, bidirectional=True)
            self.out = lib.nn.Linear(12, 3)

        def forward(self, x):
            return self.out(self.cells(x)[0])

    return Model(), (lib.ones(7, 3, 4, requires_grad=True),)


def totals(counts):
    """Returns the counts of each module, summed over its ops."""
    return {module: sum(ops.values()) for module, ops in counts.items()}


def counted_by_torch(make, backward):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode as TorchCounter

    model, inputs = make(torch)
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), TorchCounter(display=False) as c:
        result = model(*inputs)
        if backward:
            result.sum().backward()
    return totals(c.get_flop_counts())


# --- the counter -----------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("make", MODELS)
def test_counts_are_those_of_torch(make, backward):
    model, inputs = make(tg)
    with FlopCounterMode(display=False) as counter:
        result = model(*inputs)
        if backward:
            result.sum().backward()
    assert counter.get_total_flops() > 0 and totals(counter.get_flop_counts()) == counted_by_torch(make, backward)


@needs_torch
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_count_as_in_torch(name):
    model, inputs = recurrent(tg, name)
    with FlopCounterMode(display=False) as counter:
        result = model(*inputs)
    forward = counter.get_total_flops()
    assert totals(counter.get_flop_counts()) == counted_by_torch(lambda lib: recurrent(lib, name), False)
    with FlopCounterMode(display=False) as counter:
        result.sum().backward()
    assert counter.get_total_flops() == 2 * forward  # for the inputs and states, and for the weights


def test_a_projected_lstm():
    cell = nn.LSTM(4, 6, proj_size=2)
    with FlopCounterMode(display=False) as counter:
        cell(tg.ones(5, 3, 4))
    assert counter.get_total_flops() == 2 * 15 * (24 * 4 + 24 * 2 + 2 * 6)


@needs_torch
def test_the_table_is_that_of_torch():
    pytest.importorskip("tabulate", reason="torch makes its table with it")
    import torch
    from torch.utils.flop_counter import FlopCounterMode as TorchCounter

    rows = []
    for lib, counter in ((tg, FlopCounterMode(display=False)), (torch, TorchCounter(display=False))):
        model, inputs = perceptron(lib)
        with counter:
            model(*inputs)
        lines = [line.split() for line in counter.get_table(depth=2).splitlines()]
        rows.append([line for line in lines if line[0] != "-" and not line[0].startswith("--")])
    assert rows[0] == rows[1]


def test_display_and_depth(capsys):
    model, inputs = perceptron(tg)
    with FlopCounterMode(depth=1) as counter:
        model(*inputs)
    shown = capsys.readouterr().out
    assert "Sequential " in shown and "Sequential.0" not in shown and "100.00%" in shown
    assert "Sequential.0" in counter.get_table() or "Sequential.0" in counter.get_table(depth=2)
    with FlopCounterMode():
        pass
    assert "Global" in capsys.readouterr().out
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        FlopCounterMode(model)
    assert "not needed" in str(found[0].message)


def test_a_backward_pass_alone_and_second_derivatives():
    x, w = tg.ones(3, 4, requires_grad=True), tg.ones(2, 4, requires_grad=True)
    y = nn.functional.linear(x, w)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_flop_counts()["Global"] == {"linear_backward": 2 * 2 * 3 * 4 * 2}
    with FlopCounterMode(display=False) as counter:
        tg.autograd.grad(nn.functional.linear(x, w).pow(2).sum(), (x, w), create_graph=True)
    assert counter.get_total_flops() == 3 * 2 * 3 * 4 * 2  # the product, and one for each gradient


def test_saved_tensor_hooks_change_no_count():
    x, w = tg.ones(3, 4), tg.ones(2, 4, requires_grad=True)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = nn.functional.linear(x, w)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() == 2 * 3 * 4 * 2


def test_formulas_of_ones_own():
    with FlopCounterMode(display=False, custom_mapping={tg.exp: lambda shape, out_shape: 7}) as counter:
        tg.ones(3).exp()
    assert counter.get_flop_counts() == {"Global": {"exp": 7}}

    @register_flop_formula([tg.sin], get_raw=True)
    def cost(x, out_val):
        return x.numel() + out_val.numel()

    try:
        with FlopCounterMode(display=False) as counter:
            tg.ones(3).sin()
        assert counter.get_total_flops() == 6
        with pytest.raises(RuntimeError, match="duplicate"):
            register_flop_formula(tg.sin)(cost)
        with pytest.raises(ValueError, match="expected each target to be an op"):
            register_flop_formula(object())(cost)
    finally:
        del flop_registry["sin"]


def test_counting_leaves_nothing_behind():
    before = list(switches.SLOW), list(switches.OBSERVERS), nn.Module.__call__
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False):
        assert nn.Module.__call__ is not before[2]
        1 / 0
    assert before == (switches.SLOW, switches.OBSERVERS, nn.Module.__call__) and not call_hooks._LISTENERS


def test_threads_have_their_own_modules():
    model, inputs = perceptron(tg)
    with FlopCounterMode(display=False) as counter:
        threads = [threading.Thread(target=lambda: model(*inputs)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = totals(counter.get_flop_counts())
    assert counts == {"Global": 4 * 288, "Sequential": 4 * 288, "Sequential.0": 4 * 192, "Sequential.2": 4 * 96}


def test_the_tracker_knows_where_it_is():
    inner = nn.Linear(2, 2)
    model = nn.Sequential(nn.Sequential(inner))
    seen = []
    with ModuleTracker() as tracker:
        inner.register_forward_hook(lambda *_: seen.append((tracker.stack, tracker.is_bw)))
        y = model(tg.ones(1, 2))
        y.register_hook(lambda g: seen.append((tracker.stack, tracker.is_bw)))
        y.sum().backward()
        with pytest.raises(RuntimeError):
            model(tg.ones(1, 3))
        assert tracker.parents == {"Global"}  # also after an error
    assert seen == [(("Sequential", "Sequential.0", "Sequential.0.0"), False), ((), True)]


# --- the summary -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm, self.drop, self.relu = nn.BatchNorm2d(channels), nn.Dropout(0.5), nn.ReLU()

    def forward(self, x):
        return self.relu(self.drop(self.norm(self.conv(self.relu(x)))) + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, 10)

    def forward(self, x, scale=1.0):
        features = self.blocks(self.stem(x))
        return {"logits": self.head(features.mean((2, 3))) * scale, "features": (features, 1)}


class Language(nn.Module):
    """Shares its embedding with its last layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


class Looking(nn.Module):
    """Reads values, and stores things on itself."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.calls = nn.Linear(4, 4), nn.BatchNorm1d(4), 0
        self.register_buffer("last", tg.zeros(4))

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.layer(x))
        self.last = y[0].detach()
        self.seen = y
        return tg.dropout(y, 0.5, True) if x.sum().item() < 100 else y


def layer_of(summary, path):
    return next(layer for layer in summary.layers if layer.path == path)


def test_layers_shapes_parameters():
    summary = nn.summary(Net(), (2, 3, 10, 10))
    assert [(layer.path, layer.kind, layer.depth) for layer in summary.layers][:4] == [
        ("", "Net", 0), ("stem", "Conv2d", 1), ("blocks", "Sequential", 1), ("blocks.0", "Block", 2),
    ]  # fmt: skip
    assert summary.device == "meta" and summary.parameters == sum(p.numel() for p in Net().parameters())
    shown = summary_table.shape_text(summary.layers[0].output)
    assert shown == "{logits: [2, 10], features: ([2, 4, 8, 8], int)}"
    assert layer_of(summary, "blocks.1.relu").calls == 2 and layer_of(summary, "blocks.1.conv").parameters == 144
    assert layer_of(summary, "blocks").parameters == 2 * (144 + 8)
    stem, conv, head = 2 * 64 * 4 * 27, 2 * 64 * 4 * 36, 2 * 10 * 4
    assert layer_of(summary, "stem").multiply_adds == stem and summary.multiply_adds == stem + 2 * conv + head
    assert summary.input_bytes == 2 * 3 * 100 * 4


def test_what_is_kept_is_what_the_graph_holds():
    """Compares with an independent walk over the graph of a real run."""
    model, x = Net(), tg.ones(2, 3, 10, 10)
    model.blocks[1].conv.weight.requires_grad_(False)
    summary = nn.summary(model, x)
    result = model(x)
    known = {id(t._storage) for t in (x, *model.parameters(), *model.buffers())}
    held, stack, visited = {}, [result["logits"].grad_fn, result["features"][0].grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in visited:
            continue
        visited.add(id(node))
        for saved in node.saved or ():
            if isinstance(saved, tuple) and id(saved[1]) not in known:
                held[id(saved[1])] = saved[1].nbytes()
            elif isinstance(saved, np.ndarray):  # what a kernel keeps for its backward kernel
                held[id(saved)] = saved.nbytes
        stack += [edge[0] for edge in node.edges if edge is not None and not isinstance(edge[0], tg.Tensor)]
    assert summary.kept == sum(held.values()) > 0
    assert summary.trainable == summary.parameters - 144
    with tg.no_grad():
        assert nn.summary(model, x).kept == 0


@pytest.mark.parametrize(
    ("make", "shape", "dtype"),
    [(Net, (2, 3, 10, 10), None), (Language, (2, 6), tg.long), (lambda: nn.LSTM(4, 6, 2), (5, 3, 4), None)],
)
def test_shapes_alone_say_the_same_as_a_run(make, shape, dtype, monkeypatch):
    model = make()
    by_shapes = nn.summary(model, shape, dtypes=dtype)

    def fails(tensor):
        raise RuntimeError("no meta device today")

    monkeypatch.setattr(model_summary, "_on_meta", fails)
    by_running = nn.summary(model, shape, dtypes=dtype)
    assert (by_shapes.device, by_running.device) == ("meta", "cpu")
    for a, b in zip(by_shapes.layers, by_running.layers, strict=True):
        assert summary_table.cells(a) == summary_table.cells(b)
        assert (a.multiply_adds, a.made, a.kept, a.calls) == (b.multiply_adds, b.made, b.kept, b.calls)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [Net, Looking])
def test_nothing_changes(make, training):
    model = make().train(training)
    list(model.children())[-1].eval()
    x = tg.randn(3, 4) if make is Looking else tg.randn(2, 3, 8, 8)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes, objects = [m.training for m in model.modules()], [id(p) for p in (*model.parameters(), *model.buffers())]
    versions, random = [b._version for b in model.buffers()], tg.get_rng_state()
    summary = nn.summary(model, x)
    assert summary.device == ("cpu" if make is Looking else "meta")
    assert modes == [m.training for m in model.modules()] and tg.equal(random, tg.get_rng_state())
    assert objects == [id(p) for p in (*model.parameters(), *model.buffers())]
    assert versions == [b._version for b in model.buffers()]
    assert all(tg.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters()) and not hasattr(model, "seen")
    assert getattr(model, "calls", 0) == 0 and not call_hooks._LISTENERS


def test_errors_of_the_model_come_through_and_change_nothing():
    model = Net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="expected input"):
        nn.summary(model, (2, 5, 10, 10))
    assert all(tg.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not switches.SLOW and not switches.OBSERVERS
    with pytest.raises(TypeError, match="expected model to be a Module, but got int"):
        nn.summary(3)
    with pytest.raises(ValueError, match="weight has no shape yet"):
        nn.summary(nn.LazyLinear(3), (1, 2))
    with pytest.raises(ValueError, match="each of the 1 shapes, but got 3 dtypes"):
        nn.summary(model, (1, 3, 8, 8), dtypes=[tg.float32] * 3)


def test_what_is_shared_counts_once():
    summary = nn.summary(Language(), (2, 6), dtypes=tg.long)
    assert summary.parameters == sum(p.numel() for p in Language().parameters())
    head = layer_of(summary, "head")
    assert (head.parameters, head.shared) == (0, 160) and summary_table.cells(head)[1] == "shared"
    layer = nn.Linear(3, 3)
    summary = nn.summary(nn.Sequential(layer, nn.ReLU(), layer), (1, 3))
    assert summary.parameters == 12 and len(summary.layers) == 3 and layer_of(summary, "0").calls == 2
    assert "0: Linear ×2" in str(summary)


@pytest.mark.parametrize("looks", [False, True], ids=["by shapes", "by a run"])
@pytest.mark.parametrize("training", [True, False])
def test_a_layer_whose_weights_are_taken_from_outside_is_not_called_unused(looks, training):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.tied = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.tied.weight = self.embedding.weight
            self.attend, self.spare, self.nothing = nn.MultiheadAttention(4, 2), nn.Linear(3, 3), nn.ReLU()
            self.projected = nn.Linear(4, 4)

        def forward(self, x):
            y = self.embedding(x)
            y = self.attend(y, y, y)[0] + y.max().item() * looks if looks else self.attend(y, y, y)[0]
            return nn.functional.linear(y @ self.projected.weight.t(), self.tied.weight)

    summary = nn.summary(Model().train(training), (2, 3), dtypes=tg.int64)
    shown = {layer.path: summary_table.cells(layer)[0] for layer in summary.layers}
    assert summary.device == ("cpu" if looks else "meta")
    assert shown["tied"] == shown["attend.out_proj"] == shown["projected"] == "weights used"
    assert shown["spare"] == "not called" and shown["nothing"] == summary_table.NONE
    assert shown["embedding"] == "[2, 3, 4]" and shown[""] == "[2, 3, 5]"


def test_inputs_of_all_kinds():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Bilinear(2, 3, 4)

        def forward(self, a, b, times=1):
            return (self.mix(a, b) * times,)

    a, b, expected = tg.ones(5, 2), tg.ones(5, 3), "([5, 4])"
    for given in ((a, b), [(5, 2), (5, 3)], [a, (5, 3)], {"a": a, "b": (5, 3)}, {"b": b, "a": a}):
        summary = nn.summary(Two(), given, kwargs={"times": 2})
        assert summary_table.shape_text(summary.layers[0].output) == expected
    with pytest.raises(RuntimeError, match="dtype"):
        nn.summary(Two(), [(5, 2), (5, 3)], dtypes=[tg.float64, tg.float64])
    assert nn.summary(nn.ReLU(), tg.Size([])).layers[0].output.shape == ()
    assert nn.summary(nn.Embedding(5, 2), (3,), dtypes=tg.int64).layers[0].output.shape == (3, 2)
    unrun = nn.summary(Net())
    assert unrun.device is None and "Output" not in str(unrun) and "Multiply-adds" not in str(unrun)


def test_the_text():
    text = str(nn.summary(Net(), (2, 3, 10, 10), depth=1))
    lines = text.splitlines()
    assert lines[0].split() == ["Layer", "Output", "Parameters", "Multiply-adds", "Kept", "for", "backward"]
    assert [line.split()[0] for line in lines[2:6]] == ["Net", "├─", "├─", "└─"] and "conv" not in text
    assert "Parameters" in text and "all trainable" in text and "by shapes alone" in text
    assert repr(nn.summary(nn.ReLU())) == str(nn.summary(nn.ReLU()))
    deep = str(nn.summary(Net(), (2, 3, 10, 10)))
    assert "│  ├─ 0: Block" in deep and "│  │  └─ relu: ReLU ×2" in deep and "│     ├─ conv: Conv2d" in deep
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.unused = nn.Linear(3, 3)
    model.forward = lambda x: model[0](x)
    assert "not called" in str(nn.summary(model, (1, 2)))


def test_saving(tmp_path):
    summary = nn.summary(Net(), (2, 3, 10, 10))
    assert summary.save(tmp_path / "net.txt").read_text() == f"{summary}\n"
    assert summary.save(tmp_path / "net.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.html", "net.txt"]
    with pytest.raises(ValueError, match=r"ends with .html or .txt"):
        summary.save(tmp_path / "net.png")


def test_nothing_of_it_is_loaded_with_the_package():
    import subprocess
    import sys

    program = (
        "import sys, tensorgrad, tensorgrad.nn; "
        "print([m for m in sys.modules if 'viz' in m or 'summary' in m or 'call_hooks' in m or 'flop' in m])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_large_numbers_are_exact():
    summary = nn.summary(nn.Linear(50_000, 50_000, device="meta"), (4096, 50_000))
    assert summary.multiply_adds == 4096 * 50_000**2 and summary.parameters == 50_000**2 + 50_000
    assert isinstance(summary.kept, int) and not isinstance(summary.kept, np.integer)
