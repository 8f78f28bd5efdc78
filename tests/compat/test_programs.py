"""Complete PyTorch programs, unchanged: the same seed gives the same loss curve under torch and under tensorgrad."""

import ast
import functools
import json
import math
import sys

import pytest

from tests.conftest import HAS_TORCH
from tests.run_programs import PROGRAMS
from tests.support.processes import ROOT, environment, output_of

STEPS = 20
TOLERANCE = 1e-3  # relative; the losses differ by 1e-7 at first, and training spreads that

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is the oracle of this test")
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)


def run(*command):
    """Returns what a Python process with one thread prints."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return output_of(None, *command, cwd=ROOT, env=environment("DEBUG", **one))


@functools.cache
def outcomes(library):
    """The outcome of every program under "torch" or "tensorgrad", by name: one process runs them all."""
    launcher = [] if library == "torch" else ["-m", "tensorgrad.run"]
    lines = run(*launcher, ROOT / "tests" / "run_programs.py", STEPS).splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


def losses_of(program, library):
    found = outcomes(library)[program.stem]
    assert "error" not in found, f"under {library}: {found['error']}"
    return found["losses"]


@each_program
def test_runs(program):
    losses = losses_of(program, "tensorgrad")
    assert len(losses) == STEPS and len(set(losses)) > STEPS // 2
    assert all(type(loss) is float and math.isfinite(loss) for loss in losses)


@needs_torch
@each_program
def test_same_losses_as_torch(program):
    expected, actual = losses_of(program, "torch"), losses_of(program, "tensorgrad")
    assert actual == pytest.approx(expected, rel=TOLERANCE)


@each_program
def test_is_an_ordinary_program(program):
    """It imports torch and the standard library only, is of readable length, and has a `main(steps)`."""
    text = program.read_text()
    tree = ast.parse(text)
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert "torch" in imported and imported - {"torch"} <= sys.stdlib_module_names
    assert 40 <= len(text.splitlines()) <= 120
    assert "main" in {f.name for f in tree.body if isinstance(f, ast.FunctionDef)}


def test_a_program_runs_as_a_script():
    lines = run("-m", "tensorgrad.run", ROOT / "tests" / "programs" / "mlp.py").splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"step {i}" for i in range(20)]
    shown = [float(line.rpartition(" ")[2]) for line in lines]
    assert shown == pytest.approx(losses_of(ROOT / "tests" / "programs" / "mlp.py", "tensorgrad"), abs=1e-4)
