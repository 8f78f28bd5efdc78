"""What a file says of the modules and lines that its operators come from."""

import io
from ast import literal_eval

import pytest

import tensorgrad as torch
from tensorgrad import nn

PREFIX = "pkg.torch.onnx."


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def helper(self, x):
        return x.relu() + self.fc(x)

    def forward(self, x):
        return self.norm(self.helper(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.last = self.blocks[1].fc

    def forward(self, x):
        y = self.blocks(x)
        first = y[0]
        return self.last(first.sin())


def scopes(node):
    return literal_eval(node.metadata[PREFIX + "name_scopes"])


def texts(node):
    """The lines of the program in a node's trace."""
    lines = node.metadata[PREFIX + "stack_trace"].splitlines()
    assert all(line.strip().startswith("File ") for line in lines[::2])
    return [line.strip() for line in lines[1::2]]


def test_operators_name_their_modules_and_lines():
    nodes = torch.onnx.export(Net(), (torch.ones(2, 4),)).model.graph.nodes
    found = {node.operator: [n for n in nodes if n.operator == node.operator] for node in nodes}
    relu, gemm = found["Relu"][1], found["Gemm"][1]
    assert scopes(relu) == ["", "blocks", "blocks.1", "relu_1"]
    assert scopes(gemm) == ["", "blocks", "blocks.1", "blocks.1.fc", "linear_1"]
    assert literal_eval(gemm.metadata[PREFIX + "class_hierarchy"]) == [
        f"{__name__}.Net", "tensorgrad.nn.container.Sequential", f"{__name__}.Block", "tensorgrad.nn.linear.Linear",
        "torch._C._nn.linear",
    ]  # fmt: skip
    assert gemm.metadata["namespace"].startswith(
        f": {__name__}.Net/blocks: tensorgrad.nn.container.Sequential/blocks.1"
    )
    assert "(args = (%layer_norm, " in gemm.metadata[PREFIX + "fx_node"]
    program = ["y = self.blocks(x)", "input = module(input)", "return self.norm(self.helper(x))"]
    assert texts(relu) == program and texts(gemm)[:3] == program and "F.linear" in texts(gemm)[3]
    assert f'File "{__file__}", line ' in relu.metadata[PREFIX + "stack_trace"]


def test_a_view_has_its_own_line_though_it_is_made_where_it_is_used():
    nodes = torch.onnx.export(Net(), (torch.ones(2, 4),)).model.graph.nodes
    (sine,) = (n for n in nodes if n.operator == "Sin")
    (view,) = (n for n in nodes if n.outputs[0] == sine.inputs[0])
    assert scopes(view) == ["", "select"] and texts(view) == ["first = y[0]"]
    last = [n for n in nodes[nodes.index(sine) + 1 :] if n.inputs != ["blocks.1.fc.weight"]]  # it is transposed
    assert {scopes(n)[1] for n in last} == {"last"}  # the name by which the program calls it


def test_operators_of_a_function():
    def program(x):
        return helper(x) * 2

    def helper(x):
        return x.sin()

    sine, product = torch.onnx.export(program, (torch.ones(2),)).model.graph.nodes
    assert scopes(sine) == ["sin"] and texts(sine) == ["return helper(x) * 2", "return x.sin()"]
    assert texts(product) == ["return helper(x) * 2"]


def test_operators_of_a_twin_come_from_the_op():
    nodes = torch.onnx.export(lambda x: torch.logit(x, eps=0.1), (torch.rand(3),)).model.graph.nodes
    assert len(nodes) > 1 and {scopes(n)[0] for n in nodes} == {"logit"}


def test_branches_loops_and_folded_norms():
    def program(n, x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return torch.while_loop(lambda y: y.sum() < n, lambda y: (y + 1,), (y,))

    nodes = torch.onnx.export(program, (torch.tensor(5.0), torch.ones(2))).model.graph.nodes
    (branch,) = (n for n in nodes if n.operator == "If")
    (loop,) = (n for n in nodes if n.operator == "Loop")
    assert texts(branch)[0].startswith("y = torch.cond(") and texts(loop)[0].startswith("return torch.while_loop(")
    inside = [n for n in loop.attributes["body"].nodes if n.metadata]
    assert inside and all(texts(n)[0].startswith("return torch.while_loop(") for n in inside)
    (conv,) = torch.onnx.export(
        nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), (torch.ones(1, 1, 2, 2),)
    ).model.graph.nodes
    assert scopes(conv) == ["", "1", "batch_norm"]  # the one whose result it has, as in PyTorch's files


def test_files_have_them_and_are_valid():
    onnx = pytest.importorskip("onnx", reason="compares with the package onnx")
    program = torch.onnx.export(Net(), (torch.ones(2, 4),))
    written = onnx.load_model_from_string(bytes(program))
    onnx.checker.check_model(written, full_check=True)
    for node, ours in zip(written.graph.node, program.model.graph.nodes, strict=True):
        assert {p.key: p.value for p in node.metadata_props} == ours.metadata
    loaded = torch.onnx.load(io.BytesIO(bytes(program)))
    assert torch.equal(
        loaded(torch.ones(2, 4)), torch.onnx.load(io.BytesIO(written.SerializeToString()))(torch.ones(2, 4))
    )


def test_modules_are_as_they_were():
    model = Net()
    torch.onnx.export(model, (torch.ones(2, 4),))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert model.last is model.blocks[1].fc
