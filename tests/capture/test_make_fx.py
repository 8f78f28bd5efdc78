"""`torch.fx.experimental.proxy_tensor.make_fx`, and `python -m tensorgrad.capture show`."""

import subprocess
import sys

import pytest

import tensorgrad as torch
from tensorgrad.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from tests.capture.compare import bits

PROGRAMS = {
    "pointwise": (lambda x: (x.sin() + 1) * x.exp(), ["sin.default", "add.Tensor", "exp.default", "mul.Tensor"]),
    "reductions": (lambda x: x.sum(0) + x.amax(), ["sum.dim_IntList", "amax.default", "add.Tensor"]),
    "views": (lambda x: x.unsqueeze(0).permute(2, 1, 0).clone(), ["unsqueeze.default", "permute.default"]),
    "comparison": (lambda x: torch.where(x > 0, x, -x), ["gt.Scalar", "neg.default", "where.self"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nodes_have_the_names_of_the_registry(name):
    program, wanted = PROGRAMS[name]
    x, y = torch.tensor([[0.1, -0.2], [0.3, 0.4]]), torch.tensor([[1.0, 2.0], [-3.0, 4.0]])
    module = make_fx(program)(x)
    names = [str(n.target).removeprefix("aten.") for n in module.graph.nodes if n.op == "call_function"]
    assert set(wanted) <= set(names)
    assert bits(module(y)) == bits(program(y))


def test_gradients_are_part_of_the_graph():
    def slope(x):
        return torch.autograd.grad((x**2).sum(), x)[0]

    x = torch.tensor([1.0, 3.0], requires_grad=True)
    assert make_fx(slope)(x)(torch.tensor([5.0, 6.0])).tolist() == [10.0, 12.0]
    assert make_fx(torch.func.grad(lambda x: (x**2).sum()))(x.detach())(torch.tensor([5.0, 6.0])).tolist() == [
        10.0,
        12.0,
    ]


def test_what_make_fx_does_not_do():
    assert get_proxy_mode() is None
    with pytest.raises(NotImplementedError, match="tracing_mode"):
        make_fx(torch.sin, tracing_mode="symbolic")(torch.ones(1))
    with pytest.raises(NotImplementedError, match="decomposition_table"):
        make_fx(torch.sin, {1: 2})


def test_show(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "scale = torch.tensor(2.0)\n"
        "@torch.compile\n"
        "def double(x):\n"
        "    x.add_(1)\n"
        "    return x * scale\n"
        "print(double(torch.ones(2)))\n"
        "print(double(torch.ones(2)))\n"
    )
    command = [sys.executable, "-m", "tensorgrad.capture", "show", str(program)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stderr
    for text in (
        "double(Tensor [2] torch.float32)",
        "def forward(self, x)",
        "write: writes to x",
        "_tensor: Tensor []",
    ):
        assert shown.stdout.count(text) == 1
    assert shown.stdout.count("tensor([4., 4.])") == 2
    wrong = subprocess.run([*command[:4], str(tmp_path / "none.py")], capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2 and "no such file" in wrong.stderr
