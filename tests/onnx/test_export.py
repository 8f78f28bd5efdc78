"""Sizes, names, files, errors of `torch.onnx.export`."""

import io

import numpy as np
import pytest

import tensorgrad as torch
import tensorgrad.nn.functional as F
from tensorgrad import nn
from tensorgrad.onnx import errors
from tensorgrad.onnx import program as onnx_program
from tests.onnx.compare import NEEDS, check, operators

BATCH = ({0: "batch"},)
BATCH_AND_TIME = ({0: "batch", 1: "time"},)


def x(*shape):
    return torch.randn(*shape)


def written(t):
    t = t.clone()
    t[:, 0] = 1.0
    t[0] += t[-1]
    return t * t.shape[0], t[: t.shape[0] // 2], t[:, -1], torch.arange(t.shape[0]) + 1


DYNAMIC = {  # a program, its arguments, others, dynamic_shapes
    "mlp": (nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()), (x(3, 3, 4),), [(x(1, 3, 4),)], BATCH),
    "an example of size 1": (nn.Linear(3, 4), (x(1, 3),), [(x(5, 3),)], BATCH),
    "convolution": (nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2), nn.Flatten()), (x(2, 3, 16, 16),),
                    [(x(3, 3, 20, 16),)], ({0: "batch", 2: "height"},)),
    "LSTM": (nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), (x(2, 5, 3),), [(x(3, 8, 3),)], BATCH_AND_TIME),
    "GRU": (nn.GRU(3, 4), (x(2, 5, 3),), [(x(3, 8, 3),)], BATCH_AND_TIME),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (x(2, 5, 8),), [(x(3, 9, 8),), (x(1, 2, 8),)],
                BATCH_AND_TIME),
    "attention": (nn.MultiheadAttention(8, 2), (x(5, 2, 8),) * 3, [(x(7, 3, 8),) * 3], ({0: "time", 1: "batch"},) * 3),
    "causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (x(1, 2, 4, 8),), [(x(1, 2, 7, 8),)],
               ({2: "time"},)),
    "norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.PixelShuffle(2)), (x(2, 4, 8, 8),),
              [(x(3, 4, 6, 8),)], ({0: "batch", 2: "height"},)),
    "numbers": (lambda t: t.sum(0) / t.shape[0] + t.shape[0] ** 0.5, (x(3, 4),), [(x(6, 4),)], BATCH),
    "constants": (lambda t: torch.cat([torch.zeros(t.shape[0], 2), t], 1), (x(4, 3),), [(x(6, 3),)], BATCH),
    "writes": (written, (x(4, 3),), [(x(6, 3),), (x(9, 3),)], BATCH),
    "resizing": (lambda t: torch.cat([t, F.interpolate(F.max_pool2d(t, 2), size=t.shape[2:])], 1), (x(2, 3, 16, 16),),
                 [(x(1, 3, 18, 22),)], ({0: "batch", 2: "height", 3: "width"},)),
    "chunks": (lambda t: t.chunk(2)[0], (x(4, 8),), [(x(8, 8),), (x(7, 8),)], BATCH),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes(name):
    program, args, others, shapes = DYNAMIC[name]
    if isinstance(program, nn.Module):
        program.eval()
    exported = check(program, args, *others, dynamic_shapes=shapes)
    assert not isinstance(exported.model.graph.inputs[0].shape[max(shapes[0])], int)


def test_dynamic_axes_and_names():
    exported = torch.onnx.export(
        nn.Linear(3, 4), x(2, 3), input_names=["in"], output_names=["out"],
        dynamic_axes={"in": {0: "batch"}, "out": {0: "batch"}},
    )  # fmt: skip
    graph = exported.model.graph
    assert [(v.name, v.shape) for v in (*graph.inputs, *graph.outputs)] == [("in", ("batch", 3)), ("out", ("batch", 4))]
    assert [t.name for t in graph.initializers] == ["weight", "bias"]


def test_limits_of_a_dimension_are_kept_to():
    class Dim:
        __name__, min, max = "time", 2, 6

    table = nn.Embedding(6, 3)
    exported = torch.onnx.export(
        lambda i: table(i) + table(torch.arange(i.shape[0])),
        (torch.tensor([0, 1, 2, 3, 4]),),
        dynamic_shapes=({0: Dim()},),
    )
    assert exported.model.graph.inputs[0].shape == ("time",)


def test_what_cannot_be_explained_is_refused():
    with pytest.raises(errors.SymbolicValueError, match=r"test_export.py, line \d+"):
        torch.onnx.export(lambda t: sum(t[i] for i in range(t.shape[0])), (x(4, 3),), dynamic_shapes=BATCH)
    with pytest.raises(errors.SymbolicValueError, match="does not follow"):
        torch.onnx.export(
            lambda t: torch.tensor([float(i % 3) for i in range(len(t))]) + t, (x(4),), dynamic_shapes=BATCH
        )


def test_both_signatures(tmp_path):
    model, args = nn.Sequential(nn.Linear(30, 40), nn.ReLU()), (x(2, 30),)
    program = torch.onnx.export(model, args, tmp_path / "new.onnx")
    assert (tmp_path / "new.onnx.data").stat().st_size >= 30 * 40 * 4
    assert torch.onnx.export(model, args, str(tmp_path / "old.onnx"), dynamo=False) is None
    file = io.BytesIO()
    torch.onnx.export(model, args, file, dynamo=False)
    assert (tmp_path / "old.onnx").read_bytes() == file.getvalue() == bytes(program)
    program.save(tmp_path / "one.onnx", external_data=False)
    assert (tmp_path / "one.onnx").read_bytes() == bytes(program)
    with pytest.raises(ValueError, match="has to be given"):
        torch.onnx.export(model, args, dynamo=False)
    ort = pytest.importorskip("onnxruntime", reason=NEEDS)
    for name in ("new.onnx", "old.onnx", "one.onnx"):
        session = ort.InferenceSession(tmp_path / name)
        found = session.run(None, {"input": args[0].numpy()})[0]
        np.testing.assert_allclose(found, model(*args).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_model_larger_than_a_message_has_a_file_of_weights(tmp_path, monkeypatch):
    """The limit, of 2 GB, is lowered here. (`python -m tests.onnx.large` writes a real one.)"""
    model, args = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 3)), (x(2, 300),)
    program = torch.onnx.export(model, args)
    size = len(bytes(program))
    monkeypatch.setattr(onnx_program, "LARGEST_MESSAGE", size - 1)
    with pytest.raises(ValueError, match=f"a model of {size} bytes needs a file for its weights"):
        bytes(program)
    with pytest.raises(ValueError, match="needs a path"):
        program.save(io.BytesIO())
    for place in (
        lambda: program.save(tmp_path / "m.onnx"),
        lambda: torch.onnx.export(model, args, tmp_path / "m.onnx"),
    ):
        place()
        assert (tmp_path / "m.onnx").stat().st_size < 5000
        assert 300 * 200 * 4 <= (tmp_path / "m.onnx.data").stat().st_size < 300 * 200 * 4 + 8192
        again = torch.onnx.load(tmp_path / "m.onnx")(*args)
        np.testing.assert_allclose(again.detach(), model(*args).detach(), rtol=1e-5, atol=1e-5)
    ort = pytest.importorskip("onnxruntime", reason=NEEDS)
    found = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"input": args[0].numpy()})[0]
    np.testing.assert_allclose(found, model(*args).detach().numpy(), rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(onnx_program, "LARGEST_MESSAGE", 50)
    (tmp_path / "m.onnx").unlink(), (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(errors.OnnxExporterError, match="without its weights"):
        program.save(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_metadata():
    model = torch.onnx.export(nn.ReLU(), (x(2),), opset_version=21).model
    assert model.producer_name == "tensorgrad" and model.producer_version
    assert (model.opsets, model.ir_version) == ({"": 21}, 10)
    for version in (17, 24):
        with pytest.raises(ValueError, match="18 to 23"):
            torch.onnx.export(nn.ReLU(), (x(2),), opset_version=version)


def test_an_op_without_a_translation_names_the_line(tmp_path):
    def program(t):
        return torch.fft.rfft(t).abs()

    with pytest.raises(errors.UnsupportedOperatorError, match=r"fft_r2c \(.*test_export.py, line \d+\)"):
        torch.onnx.export(program, (x(8),), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "m.onnx").mkdir()  # which a file cannot replace
    with pytest.raises(OSError):
        torch.onnx.export(nn.Linear(30, 40), (x(2, 30),), tmp_path / "m.onnx", external_data=False)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_reads_of_values_are_refused():
    with pytest.raises(RuntimeError, match="is read as"):
        torch.onnx.export(lambda t: t * t.sum().item(), (x(3),))


def test_custom_translations():
    table = {torch.relu: lambda g, input: g.op("com.example::Rectify", input, alpha=0.5)}
    model = torch.onnx.export(
        nn.ReLU(), (x(3),), custom_translation_table=table, custom_opsets={"com.example": 2}
    ).model
    node = model.graph.nodes[0]
    assert (node.domain, node.operator, node.attributes) == ("com.example", "Rectify", {"alpha": 0.5})
    assert model.opsets == {"": 20, "com.example": 2}
    torch.onnx.register_custom_op_symbolic("aten::gelu", lambda g, input, approximate: g.op("Identity", input), 18)
    try:
        assert operators(torch.onnx.export(nn.GELU(), (x(3),))) == ["Identity"]
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::gelu", 18)
    assert operators(torch.onnx.export(nn.GELU(), (x(3),))) == ["Gelu"]


def test_missing_packages_are_one_line(monkeypatch):
    import sys

    program = torch.onnx.export(nn.ReLU(), (x(3),))
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="the package onnx is not installed"):
        _ = program.model_proto
    with pytest.raises(ImportError, match="needs the package onnxruntime"):
        program(x(3))


def test_is_in_onnx_export():
    seen = []
    torch.onnx.export(lambda t: (seen.append(torch.onnx.is_in_onnx_export()), t + 1)[1], (x(3),))
    assert seen == [True] and not torch.onnx.is_in_onnx_export()


class Branches(nn.Module):
    """Branches with parameters, of which one has a branch of its own; a value that both sides and others need."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        y = x * 3

        def yes(x):
            z = torch.cond(x.max() > 1, lambda x: self.a(x) - y, lambda x: x, (x,))
            return z, y

        first, second = torch.cond(x.sum() > 0, yes, lambda x: (self.b(x).relu(), x.cos()), (x,))
        return first + y, second


@pytest.mark.parametrize("dynamic", [False, True])
def test_branches(dynamic):
    torch.manual_seed(0)
    model = Branches()
    others = [(torch.tensor([[0.2, 0.3]]),), (torch.tensor([[-1.0, 0.5]]),)]
    shapes = ({0: "batch"},) if dynamic else None
    others += [(torch.randn(n, 2),) for n in (3, 5)] if dynamic else []
    program = check(model, (torch.tensor([[1.0, 2.0]]),), *others, dynamic_shapes=shapes)
    nodes = program.model.graph.nodes
    (branch,) = (n for n in nodes if n.operator == "If")
    then, other = (branch.attributes[name] for name in ("then_branch", "else_branch"))
    assert sorted(n.operator for n in then.nodes if n.operator != "Identity").count("If") == 1
    assert {"Gemm", "Relu", "Cos"} & {n.operator for n in other.nodes} >= {"Relu", "Cos"}
    assert not any(n.operator in ("Relu", "Cos", "Where") for n in nodes)
    loaded = torch.onnx.load(io.BytesIO(bytes(program)))
    for args in ((torch.tensor([[1.0, 2.0]]),), *others):
        for a, b in zip(loaded(*args), model(*args), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


class Loops(nn.Module):
    """A loop with a parameter, a value from outside, a branch within, and a loop after it."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)

    def forward(self, count, x):
        y = x.cos()

        def body(i, x):
            return i + 1, torch.cond(x.sum() > 0, lambda x: self.a(x) - y, lambda x: x + i, (x,))

        i, x = torch.while_loop(lambda i, x: i < count, body, (torch.tensor(0), x))
        (x,) = torch.while_loop(lambda x: x.abs().sum() < 50, lambda x: (x * 2 + 1,), (x,))
        return i, x, y


@pytest.mark.parametrize("dynamic", [False, True])
def test_loops(dynamic):
    torch.manual_seed(0)
    model = Loops()
    others = [(torch.tensor(n), torch.tensor([[0.3, -1.0]])) for n in (0, 1, 5)]
    shapes = (None, {0: "batch"}) if dynamic else None
    others += [(torch.tensor(2), torch.randn(n, 2)) for n in (3, 5)] if dynamic else []
    args = torch.tensor(3), torch.tensor([[1.0, 2.0]])
    program = check(model, args, *others, dynamic_shapes=shapes)
    loops = [n for n in program.model.graph.nodes if n.operator == "Loop"]
    assert len(loops) == 2 and "If" in [n.operator for n in loops[0].attributes["body"].nodes]
    assert not any(n.operator in ("Where", "Gemm") for n in program.model.graph.nodes)
    loaded = torch.onnx.load(io.BytesIO(bytes(program)))
    for given in (args, *others):
        for a, b in zip(loaded(*given), model(*given), strict=True):
            assert torch.allclose(a, b, rtol=1e-5)


def test_a_loop_over_numbers_is_not_exported():
    def program(x):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))[1]

    with pytest.raises(NotImplementedError, match="carry tensors"):
        torch.onnx.export(program, (torch.ones(2),))
