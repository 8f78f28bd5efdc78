"""What editors and type checkers see: the stubs know every op, say what it returns, and reject what does not exist."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad._stubs.exports import moved_files
from tensorgrad.compat import type_stubs
from tensorgrad.dispatch.kinds import FUNCTIONS
from tensorgrad.tensor import Tensor

ROOT = Path(tensorgrad.__file__).parent
needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")

PROGRAM = """
import tensorgrad as torch
import tensorgrad.nn.functional as F
from tensorgrad import nn, optim

x = torch.randn(3, 4, requires_grad=True)
reveal_type(x)
reveal_type(2 * x + 1 - x / 2)
reveal_type(-x @ x.mT)
reveal_type(x > 0)
reveal_type(x == 0)
reveal_type(x[0, :])
reveal_type(x.sum(dim=1, keepdim=True).exp_().T)
reveal_type(torch.cat([x, x], dim=0).reshape(-1).float())
reveal_type(torch.special.expit(x))
reveal_type(torch.linalg.inv(x))
reveal_type(F.relu(x))
reveal_type(F.conv2d(x, x))
x += 1
reveal_type(x)
for row in x:
    reveal_type(row)

model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
optimizer = optim.Adam(model.parameters(), lr=1e-3)
schedule = optim.lr_scheduler.StepLR(optimizer, 10)
for _ in range(2):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), torch.tensor([0, 1, 2]))
    reveal_type(loss)
    loss.backward()
    optimizer.step()
    schedule.step()
with torch.no_grad():
    values, indices = model(x).max(dim=1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
"""

# Each line is an error, and the only one.
MISTAKES = {
    "x.sgmoid()": '"Tensor" has no attribute "sgmoid"',
    "torch.sgmoid(x)": 'Module has no attribute "sgmoid"',
    "F.reluu(x)": 'Module has no attribute "reluu"',
    "nn.Linaer(2, 3)": 'Module has no attribute "Linaer"',
    "optim.Adm(())": 'Module has no attribute "Adm"',
    'torch.sigmoid("a")': 'Argument 1 to "sigmoid" has incompatible type "str"; expected "Tensor"',
    'x + "a"': 'Unsupported operand types for + ("Tensor" and "str")',
    "x.sum(dims=0)": 'Unexpected keyword argument "dims" for "sum"',
}


def checked(path: Path, program: str) -> list[str]:
    """What mypy says of a program (not of the package), line by line."""
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT.parent / "pyproject.toml"), "--no-error-summary"]
    result = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=ROOT.parent)
    assert not result.stderr, result.stderr
    return [line for line in result.stdout.splitlines() if path.name in line.partition(":")[0]]


@needs_mypy
def test_a_program_is_understood(tmp_path):
    notes = checked(tmp_path / "program.py", PROGRAM)
    assert len(notes) == PROGRAM.count("reveal_type"), notes
    for note in notes:
        assert note.endswith('note: Revealed type is "tensorgrad.tensor.Tensor"'), note


@needs_mypy
def test_mistakes_are_found(tmp_path):
    head = "import tensorgrad as torch\nimport tensorgrad.nn.functional as F\nfrom tensorgrad import nn, optim\n"
    program = head + "x = torch.ones(2)\n" + "\n".join(MISTAKES) + "\n"
    found = [line for line in checked(tmp_path / "mistakes.py", program) if ": error:" in line]
    assert len(found) == len(MISTAKES), found
    for line, message in zip(found, MISTAKES.values(), strict=True):
        assert message in line


def names_in(stub: str) -> set[str]:
    """The functions, methods and properties that a stub defines."""
    tree = ast.parse((ROOT / "_stubs" / stub).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_op_is_in_the_stubs():
    methods, functions = names_in("methods.pyi"), names_in("functions.pyi")
    here = {name for name in vars(Tensor) if not name.endswith("_demo") and not name.startswith(("_", "toy_"))}
    written = {node for node in dir(Tensor) if node in (ROOT / "tensor.py").read_text()}
    assert not here - methods - written
    assert not {n for n in FUNCTIONS if not n.endswith("_demo") and not n.startswith("toy_")} - functions


@pytest.mark.parametrize("stub", ["methods.pyi", "functions.pyi", "functional.pyi", "special.pyi"])
def test_no_annotation_means_an_op_of_the_same_name(stub):
    """`float`, `bool`, `complex`, ... are methods or functions in the stubs: annotations must use other names."""
    tree = ast.parse((ROOT / "_stubs" / stub).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    annotations = [a.annotation for f in functions for a in (*f.args.args, *f.args.kwonlyargs) if a.annotation]
    annotations += [f.returns for f in functions if f.returns]
    used = {node.id for a in annotations for node in ast.walk(a) if isinstance(node, ast.Name)}
    assert not used & {f.name for f in functions}


def test_a_moved_module_shows_the_private_names_that_pytorch_has_and_no_others():
    pytest.importorskip("torch", reason="the names of PyTorch's modules")
    for file, text in moved_files().items():
        module = file.replace("/", ".")
        imported = [alias for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) for alias in node.names]
        shown = {alias.asname for alias in imported if alias.asname and alias.asname[0] == "_"}
        ours = vars(importlib.import_module(f"tensorgrad.{module}"))
        try:
            theirs = importlib.import_module(f"torch.{module}")
        except ModuleNotFoundError:
            theirs = None
        source = (ROOT / "compat" / "names" / f"{file}.py").read_text()
        bound = {name for name in type_stubs.names_in(ast.parse(source).body) if name[0] == "_" and name[:2] != "__"}
        assert shown == {name for name in bound if hasattr(theirs, name)} and shown <= ours.keys(), module
