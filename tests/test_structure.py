"""The house keeps its shape: floors import downwards, the engine stays small, import stays light, stubs are current."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad.ops import FAMILIES as FAMILIES_OF_OPS

ROOT = Path(tensorgrad.__file__).parent

# The generated stubs are for type checkers only.
FLOOR_0 = {
    "cgroups", "command", "const", "dtypes", "devices", "forks", "size", "layouts", "per_thread", "return_types",
    "whole_modules",
    "_methods", "_functions", "_functional", "_special",
}  # fmt: skip
FLOOR_1 = {"storage", "generator", "generator_philox", "ops.dispatch", "ops.stubs"}
FLOOR_2 = {
    "tensor", "printing", "autograd", "ops", "ops.op", "ops.kinds", "ops.callpath", "ops.slowpath", "ops.inplace",
    "ops.promote", "ops.errors", "ops.out", "ops.shapes", "ops.show",
}  # fmt: skip
FAMILIES = {"ops." + name for name in FAMILIES_OF_OPS}
FLOOR_3 = FAMILIES | {
    "ops.formats",
    "ops.no_derivative",
    "ops.number_first",
    "ops.own_dtype",
    "ops.precision",
    "kernels",
    "guard",
    "random",
    "settings",
    "queries",
    "debug",
    "fft",
    "linalg",
    "signal",
    "special",
    "processes",
    "folders",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__")


def floor(name: str) -> int:
    """The floor of a module, named without the package."""
    for level, rooms in ((0, FLOOR_0), (3, FLOOR_3), (1, FLOOR_1), (2, FLOOR_2)):
        if name in rooms or any(name.startswith(room + ".") and room != "ops" for room in rooms):
            return level
    return 4


def imports_at_module_level(path: Path):
    """Modules of the package that a file imports when it is itself imported (not inside functions)."""
    tree = ast.parse(path.read_text())
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    inner = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in nodes:
        if id(node) in inner:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tensorgrad"):
            base = node.module.removeprefix("tensorgrad").lstrip(".")
            for alias in node.names:
                sub = f"{base}.{alias.name}".lstrip(".")
                is_module = (ROOT / Path(*sub.split("."))).with_suffix(".py").exists() or (
                    ROOT / Path(*sub.split(".")) / "__init__.py"
                ).exists()
                yield sub if is_module else base
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("tensorgrad.") for a in node.names if a.name.startswith("tensorgrad."))


MODULES = sorted(p for p in ROOT.rglob("*.py"))
# The lists at the top of each package, and what only runs as a command, see every floor.
LISTS = {"", "ops", "stubs", "debug"}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_floors_import_only_downwards(path):
    name = module_name(path)
    if name in LISTS:
        return
    for imported in imports_at_module_level(path):
        if imported:
            assert floor(imported) <= floor(name), f"{name} (floor {floor(name)}) imports {imported} above it"


def code_lines(path: Path) -> int:
    """Lines of code: without blank lines, comments and docstrings."""
    text = path.read_text()
    lines = {i for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_engine_stays_readable():
    engine = {module_name(p): code_lines(p) for p in MODULES if floor(module_name(p)) <= 2}
    # Not part of the text that explains the engine: generated names, and tools beside it.
    beside = {
        "cgroups", "command", "const",
        "generator", "generator_philox", "printing", "ops.show", "autograd.functional", "autograd.checking",
        "autograd.by_hand", "autograd.edges", "autograd.forward_ad", "autograd.function_results", "autograd.grad_mode",
        "autograd.handles", "autograd.named_nodes",
        "autograd.once", "autograd.passes", "autograd.refused_views", "autograd.tracebacks", "autograd.variable",
        "autograd.saved", "autograd.saving", "forks", "per_thread",
        "autograd.profiler", "storage.cuda", "storage.cuda_devices", "storage.cuda_memory",
        "storage.cuda_storage", "storage.recycling", "whole_modules",
    }  # fmt: skip
    total = sum(n for name, n in engine.items() if name not in beside)
    assert total <= 3800, f"floors 0-2 have {total} lines of code: {engine}"


def test_importing_brings_no_optional_package():
    program = (
        "import sys, numpy; before = set(sys.modules); import tensorgrad; "
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    optional = {
        "torch", "numba", "cupy", "ml_dtypes", "scipy", "tqdm", "sklearn", "threadpoolctl", "matplotlib", "safetensors",
        "hypothesis", "pytest", "graphviz",
    }  # fmt: skip
    assert "tensorgrad" in output.split()
    assert not optional & set(output.split())


def test_the_stubs_are_current():
    result = subprocess.run([sys.executable, "-m", "tensorgrad._stubs", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, f"run `python -m tensorgrad._stubs`:\n{result.stdout}{result.stderr}"


def test_show_prints_the_generated_function():
    result = subprocess.run(
        [sys.executable, "-m", "tensorgrad.dispatch.show", "mul"], capture_output=True, text=True, check=True
    )
    assert "def mul(input, other, *, out=None):" in result.stdout
    assert "def MulBackward0(node, grads):" in result.stdout


def test_debug_ladder():
    program = "import tensorgrad as t; x = t.ones(2, requires_grad=True); (x * 2).sum().backward()"
    import os

    shown = [], ["devices"], ["mul(float32[2], 2) -> float32[2]"], ["numpy.multiply"]
    for level, expected in enumerate(shown):
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "DEBUG": str(level)},
        )  # fmt: skip
        assert bool(result.stderr) == bool(level), result.stderr
        for text in expected:
            assert text in result.stderr
    twin = "import tensorgrad as t; x = t.empty(2, device='meta'); t.nn.functional.mse_loss(x, x)"
    result = subprocess.run(
        [sys.executable, "-c", twin], capture_output=True, text=True, check=True, env={**os.environ, "DEBUG": "4"}
    )
    assert "twin" in result.stderr
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, "DEBUG": "help"}
    )
    told = [line.partition("DEBUG=")[2].partition(" ")[0] for line in result.stderr.splitlines()]
    assert told == ["1", "2", "3", "4", "help"]
