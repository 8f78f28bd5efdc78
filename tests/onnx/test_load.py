"""Models read from ONNX files: those that were written here, and broken ones."""

import io
import random

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.values import tensors
from tensorgrad.onnx import control, errors
from tensorgrad.onnx.model import Graph, Model, Node, TensorData, ValueInfo
from tensorgrad.onnx.protobuf import model_message
from tests.capture.test_modules import MODULES
from tests.onnx.compare import NEEDS
from tests.onnx.test_export import DYNAMIC
from tests.onnx.test_operators import TABLE


def same(program, args, *others, **options):
    if isinstance(program, nn.Module):
        program.eval()
    written = torch.onnx.export(program, args, **options)
    loaded = torch.onnx.load(io.BytesIO(bytes(written)))
    for given in (args, *others):
        expected, found = list(tensors(program(*given))), list(tensors(loaded(*tensors(given))))
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore::tensorgrad.onnx.errors.OnnxExporterWarning")
@pytest.mark.parametrize("name", TABLE)
def test_operators(name):
    program, *args = TABLE[name]
    same(program, tuple(args))


@pytest.mark.parametrize("name", [n for n in MODULES if n != "MultiMarginLoss"])
def test_modules(name):
    make, *inputs = MODULES[name]
    torch.manual_seed(0)
    same(make(), tuple(make() for make in inputs), opset_version=23)


@pytest.mark.parametrize("name", DYNAMIC)
def test_other_sizes(name):
    program, args, others, shapes = DYNAMIC[name]
    same(program, args, *others, dynamic_shapes=shapes)


def test_a_loaded_model_trains(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    x, y = torch.rand(32, 2), torch.rand(32, 1)
    torch.onnx.export(model, (x,), tmp_path / "m.onnx")  # weights in a second file
    loaded = torch.onnx.load(tmp_path / "m.onnx")
    assert dict(loaded.named_parameters()).keys() == dict(model.named_parameters()).keys()
    optimizer = torch.optim.SGD(loaded.parameters(), 0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((loaded(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def model(nodes=(), weights=(), outputs=("y",), opset=20):
    graph = Graph("g", list(nodes), list(weights), [ValueInfo("x", 1, (2,))], [ValueInfo(n, 1, None) for n in outputs])
    return b"".join(bytes(part) for part in model_message(Model(graph, {"": opset}, 9)).parts)


THEN = Graph("then", [Node("Add", ["x", "w"], ["a"])], [TensorData("w", np.ones(2, np.float32))], [],
             [ValueInfo("a", 1, None)])  # fmt: skip
ELSE = Graph("else", [Node("Mul", ["x", "x"], ["b"])], [], [], [ValueInfo("b", 1, None)])
POSITIVE = [
    Node("Constant", [], ["zero"], {"value_float": 0.0}),
    Node("ReduceSum", ["x"], ["sum"], {"keepdims": 0}),
    Node("Greater", ["sum", "zero"], ["positive"]),
]
BODY = Graph(
    "body", [Node("Add", ["before", "x"], ["after"]), Node("Mul", ["after", "after"], ["kept"]),
             Node("Identity", ["go"], ["goes"])],
    [], [ValueInfo("turn", 7, ()), ValueInfo("go", 9, ()), ValueInfo("before", 1, None)],
    [ValueInfo("goes", 9, ()), ValueInfo("after", 1, None), ValueInfo("kept", 1, None)],
)  # fmt: skip
THREE = Node("Constant", [], ["three"], {"value_int": 3})


def inner(**changes):
    """A graph within another, with something else in it."""
    return Graph(**{**vars(ELSE), **changes})


HOSTILE = {
    "a branch that is missing": model([*POSITIVE, Node("If", ["positive"], ["y"], {"then_branch": THEN})]),
    "a branch that is a number": model(
        [*POSITIVE, Node("If", ["positive"], ["y"], {"then_branch": THEN, "else_branch": 1})]
    ),
    "a branch with an input": model(
        [*POSITIVE, Node("If", ["positive"], ["y"], {"then_branch": THEN, "else_branch": BODY})]
    ),
    "a branch that uses what comes later": model(
        [
            *POSITIVE,
            Node(
                "If",
                ["positive"],
                ["y"],
                {"then_branch": THEN, "else_branch": inner(nodes=[Node("Relu", ["y"], ["b"])])},
            ),
        ]
    ),
    "a branch that computes what is there": model(
        [
            *POSITIVE,
            Node(
                "If",
                ["positive"],
                ["y"],
                {"then_branch": THEN, "else_branch": inner(nodes=[Node("Relu", ["x"], ["sum"])])},
            ),
        ]
    ),
    "a loop that carries too much": model([THREE, Node("Loop", ["three", "", "x", "x"], ["y", "z"], {"body": BODY})]),
    "a loop that returns too little": model([THREE, Node("Loop", ["three", "", "x"], ["y"], {"body": BODY})]),
    "a scan that is not said to take anything": model([Node("Scan", ["x", "x"], ["y", "z"], {"body": BODY})]),
    "a scan of more than it has": model([Node("Scan", ["x"], ["y"], {"body": BODY, "num_scan_inputs": 2})]),
    "a scan along a number": model(
        [Node("Scan", ["x", "x", "x"], ["y", "z", "u"], {"body": BODY, "num_scan_inputs": 1, "scan_input_axes": 1})]
    ),
    "a map with another graph": model([Node("SequenceMap", ["x"], ["y"], {"body": BODY})]),
    "used before it is computed": model([Node("Relu", ["z"], ["y"])]),
    "a cycle": model([Node("Relu", ["y"], ["z"]), Node("Relu", ["z"], ["y"])]),
    "computed twice": model([Node("Relu", ["x"], ["y"]), Node("Relu", ["x"], ["y"])]),
    "an output that is not computed": model([Node("Relu", ["x"], ["z"])]),
    "another version": model([Node("Relu", ["x"], ["y"])], opset=99),
    "no graph": b"",
    "not a message": b"\xff" * 20,
    "a length beyond the end": b"\x3a\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_contradicts_itself_is_refused(name):
    with pytest.raises(errors.InvalidModelError):
        torch.onnx.load(io.BytesIO(HOSTILE[name]))


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/b", "", "..", "missing"])
def test_weights_outside_of_the_folder_are_refused(tmp_path, location):
    graph = Graph("g", [Node("Add", ["x", "w"], ["y"])], [TensorData("w", np.zeros(2, np.float32))],
                  [ValueInfo("x", 1, (2,))], [ValueInfo("y", 1, (2,))])  # fmt: skip
    parts = model_message(Model(graph, {"": 20}, 9), lambda tensor: (location, 0, 8)).parts
    (tmp_path / "m.onnx").write_bytes(b"".join(bytes(p) for p in parts))
    with pytest.raises(errors.InvalidModelError):
        torch.onnx.load(tmp_path / "m.onnx")


def layers():
    return bytes(torch.onnx.export(nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU()), (torch.rand(1, 2, 5),)))


def loops():
    """A file with graphs within a graph, a sequence, and an optional value."""
    scan = Graph("scan", [Node("Add", ["state", "part"], ["next"]), Node("Identity", ["next"], ["all"])], [],
                 [ValueInfo("state", 1, ()), ValueInfo("part", 1, ())],
                 [ValueInfo("next", 1, ()), ValueInfo("all", 1, ())])  # fmt: skip
    each = Graph(
        "each", [Node("Neg", ["one"], ["less"])], [], [ValueInfo("one", 1, None)], [ValueInfo("less", 1, None)]
    )
    zero = Node("Constant", [], ["zero"], {"value_float": 0.0})
    return model([
        THREE, zero, Node("Loop", ["three", "", "x"], ["last", "turns"], {"body": BODY}),
        Node("Scan", ["zero", "last"], ["sum", "sums"], {"body": scan, "num_scan_inputs": 1}),
        Node("SplitToSequence", ["turns"], ["parts"]), Node("SequenceMap", ["parts"], ["negative"], {"body": each}),
        Node("Optional", ["negative"], ["some"]), Node("OptionalGetElement", ["some"], ["got"]),
        Node("ConcatFromSequence", ["got"], ["joined"], {"axis": 0}), Node("Add", ["joined", "sums"], ["y"]),
    ])  # fmt: skip


def test_graphs_within_a_graph():
    found = torch.onnx.load(io.BytesIO(loops()))(torch.tensor([1.0, 2.0]))
    assert found.tolist() == [[4.0 - 4, 12.0 - 16], [4.0 - 9, 12.0 - 36], [4.0 - 16, 12.0 - 64]]


@pytest.mark.parametrize("make", [layers, loops])
def test_broken_files_are_errors_of_their_own(make):
    written = bytearray(make())
    dice = random.Random(0)
    for _ in range(400):
        data = bytearray(written)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.3:
            del data[dice.randrange(len(data)) :]
        try:
            torch.onnx.load(io.BytesIO(bytes(data)))
        except (errors.OnnxExporterError, TypeError):
            continue


@pytest.mark.parametrize("name", ["a=1)#", "_function", "class", "no_such", "__import__('os')"])
def test_names_of_attributes_are_not_code(name):
    with pytest.raises(errors.OnnxExporterError):
        torch.onnx.load(io.BytesIO(model([Node("LeakyRelu", ["x"], ["y"], {name: 1})])))
    with pytest.raises(errors.OnnxExporterError):
        torch.onnx.load(io.BytesIO(model([Node("Relu", ["x"], ["y"], {name: 1})])))


@pytest.mark.parametrize("name", ["class", "1", "self", "a b", "forward", "__class__", "x); import os #", ""])
def test_names_of_weights_and_inputs_are_not_code(name):
    weights = [TensorData(name or "w", np.ones(2, np.float32)), TensorData(f"{name}.w", np.ones(2, np.float32))]
    graph = Graph("g", [Node("Sum", [f"in {name}", *(w.name for w in weights)], ["y"])], weights,
                  [ValueInfo(f"in {name}", 1, (2,))], [ValueInfo("y", 1, None)])  # fmt: skip
    data = b"".join(bytes(part) for part in model_message(Model(graph, {"": 20}, 9)).parts)
    assert torch.onnx.load(io.BytesIO(data))(torch.ones(2)).tolist() == [3, 3]


def test_constants_and_shapes_made_of_them():
    nodes = [
        Node("Constant", [], ["size"], {"value": np.array([2, 2])}),
        Node("Constant", [], ["two"], {"value_float": 2.0}),
        Node("ConstantOfShape", ["size"], ["full"], {"value": np.array([3.0], np.float32)}),
        Node("Mul", ["full", "two"], ["scaled"]),
        Node("Flatten", ["scaled"], ["flat"], {"axis": 0}),
        Node("Sum", ["flat", "flat", "two"], ["y"]),
    ]
    assert torch.onnx.load(io.BytesIO(model(nodes)))(torch.ones(2)).tolist() == [[14.0] * 4]


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool"])
def test_padding_by_rule_is_onnxruntimes(rule, operator):
    onnxruntime = pytest.importorskip("onnxruntime", reason=NEEDS)
    sizes = {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": rule}
    w = TensorData("w", np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2) - 6)
    weights = [w] if operator == "Conv" else []
    graph = Graph("g", [Node(operator, ["x", *(t.name for t in weights)], ["y"], sizes)], weights,
                  [ValueInfo("x", 1, (1, 2, 8, 7))], [ValueInfo("y", 1, None)])  # fmt: skip
    data = b"".join(bytes(part) for part in model_message(Model(graph, {"": 20}, 9)).parts)
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 7)).astype(np.float32)
    expected = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    np.testing.assert_allclose(torch.onnx.load(io.BytesIO(data))(torch.from_numpy(x)).detach(), expected, atol=1e-5)


@pytest.mark.parametrize("values", [(1.0, 2.0), (-1.0, -2.0)])
def test_branches(values):
    data = model([*POSITIVE, Node("If", ["positive"], ["y"], {"then_branch": THEN, "else_branch": ELSE})])
    loaded, x = torch.onnx.load(io.BytesIO(data)), torch.tensor(values)
    assert torch.equal(loaded(x), x + 1 if sum(values) > 0 else x * x)
    assert [name for name, _ in loaded.named_parameters()] == ["If.then_branch.w"]
    if sum(values) > 0:
        loaded(x).sum().backward()
        assert loaded.get_parameter("If.then_branch.w").grad.tolist() == [1, 1]


def test_loops():
    data = model([THREE, Node("Loop", ["three", "", "x"], ["last", "all"], {"body": BODY})], outputs=("last", "all"))
    last, all_ = torch.onnx.load(io.BytesIO(data))(torch.tensor([1.0, 2.0]))
    assert last.tolist() == [4, 8] and all_.tolist() == [[4, 16], [9, 36], [16, 64]]


def test_loops_of_no_turns_keep_what_the_file_says():
    none = Node("Constant", [], ["none"], {"value_int": 0})
    body = inner(**{**vars(BODY), "outputs": [*BODY.outputs[:2], ValueInfo("kept", 1, (2,))]})
    data = model([none, Node("Loop", ["none", "", "x"], ["last", "all"], {"body": body})], outputs=("last", "all"))
    last, all_ = torch.onnx.load(io.BytesIO(data))(torch.tensor([1.0, 2.0]))
    assert last.tolist() == [1, 2] and all_.shape == (0, 2)


@pytest.mark.parametrize("limit", ["TURNS", "KEPT"])
def test_loops_end(monkeypatch, limit):
    monkeypatch.setattr(control, limit, 1000)
    within = Graph("within", [Node("Loop", ["most", "", "before"], ["after", "kept"], {"body": BODY}),
                              Node("Identity", ["go_on"], ["goes_on"])], [],
                   [ValueInfo("i", 7, ()), ValueInfo("go_on", 9, ()), ValueInfo("before_all", 1, None)],
                   [ValueInfo("goes_on", 9, ()), ValueInfo("after", 1, None)])  # fmt: skip
    within.nodes[0].inputs[2] = "before_all"
    within.nodes[0].outputs[:] = ["after_all", "kept_all"]
    within.outputs[1] = ValueInfo("after_all", 1, None)
    most = Node("Constant", [], ["most"], {"value_int": 2**62})
    loop = Node("Loop", ["most", "", "x"], ["y"], {"body": within})
    loaded = torch.onnx.load(io.BytesIO(model([most, loop])))
    for _ in range(2):  # also when it was stopped before
        with pytest.raises(RuntimeError, match="are the most"):
            loaded(torch.ones(2))
    three = torch.onnx.load(io.BytesIO(model([THREE, Node("Loop", ["three", "", "x"], ["last", "y"], {"body": BODY})])))
    for _ in range(100):  # each call counts anew
        three(torch.ones(2))


@pytest.mark.parametrize("operator", ["HannWindow", "ConstantOfShape"])
def test_what_is_only_said_takes_no_memory(operator):
    size = Node("Constant", [], ["size"], {"value_ints": [2**50]})
    loaded = torch.onnx.load(io.BytesIO(model([size, Node(operator, ["size"], ["y"])])))
    with pytest.raises(ValueError, match="a tensor of the shape"):
        loaded(torch.ones(2))


def test_a_tree_with_a_circle_is_refused():
    one = np.zeros(1, np.float32)
    tree = {
        "nodes_splits": one, "nodes_featureids": [0], "nodes_modes": np.zeros(1, np.uint8), "nodes_truenodeids": [0],
        "nodes_falsenodeids": [0], "nodes_trueleafs": [0], "nodes_falseleafs": [0], "leaf_targetids": [0],
        "leaf_weights": one, "tree_roots": [0],
    }  # fmt: skip
    loaded = torch.onnx.load(io.BytesIO(model([Node("TreeEnsemble", ["x"], ["y"], tree, "ai.onnx.ml")])))
    with pytest.raises(ValueError, match="circle"):
        loaded(torch.ones(2, 1))


def test_softmax_of_older_versions_is_over_all_later_dimensions():
    data = model([Node("Flatten", ["x"], ["f"], {"axis": 0}), Node("Softmax", ["f"], ["y"])], opset=12)
    assert torch.onnx.load(io.BytesIO(data))(torch.zeros(2, 4)).tolist() == [[0.125] * 8]
