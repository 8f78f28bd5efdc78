"""The code on the pages CONTRIBUTING.md, README.md and docs/architecture.md runs, from top to bottom."""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorgrad.dispatch.kinds import FUNCTIONS
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.tensor import Tensor
from tests.support.processes import not_copied

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_the_page_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the page draws pictures
    blocks = blocks_of(ROOT / name)
    assert blocks
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), {})
        assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\) +# (.*)$", block, re.MULTILINE)


def insert(block: str, folder: Path) -> None:
    """Inserts the lines with a `+` of a diff block after its other lines, in the file that its first line names."""
    head, *lines = block.splitlines()
    file = folder / head.removeprefix("# ")
    context = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    added = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    text = file.read_text("utf-8")
    assert text.count(context) == 1, f"{head}: these lines are not there exactly once:\n{context}"
    file.write_text(text.replace(context, context + added), "utf-8")


# What the page's `make` commands run here: of `make test`, the tests that look at every op and kernel.
MAKE = {
    "make kernels": ["tools.kernels"],
    "make check": ["ruff check .", "ruff format --check .", "tensorgrad._stubs", "mypy"],
    "make test": [
        "pytest -q -p no:cacheprovider -k 'has_a_family or unary or test_structure or ops.nn.activation' "
        "tests/fuzz/test_fuzz.py tests/system/test_structure.py tests/docs/test_doctests.py",
    ],
}


@pytest.mark.slow
def test_the_op_of_the_page_in_a_copy_of_the_repository(tmp_path):
    """Adds the op, its kernels and its entries in the tests, and runs the page's commands to the last one."""
    if os.environ.get("TENSORGRAD_FAST") == "0":
        pytest.skip("one of the kernels is compiled, and TENSORGRAD_FAST=0 switches those off")
    for package in ("torch", "numba", "mypy", "ruff"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: not all of the page's commands can run")
    if "squareplus" in OPS:
        pytest.skip("the op of the page is here already")
    copy = tmp_path / "tensorgrad"
    kept = ("tensorgrad", "tests", "tools", "docs", "examples", "benchmarks", "pyproject.toml", "README.md")
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=not_copied("out"))
        else:
            shutil.copy(source, copy / name)
    # What mypy knows of unchanged files, and what the emulator has compiled, need not be made again.
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    (ROOT / "build" / "emulator").mkdir(parents=True, exist_ok=True)
    (copy / "build").mkdir()
    (copy / "build" / "emulator").symlink_to(ROOT / "build" / "emulator")
    page = PAGE.read_text("utf-8")
    blocks = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        insert(block, copy)
    commands = re.search(r"```sh\n(.*?)```", page, re.DOTALL)[1].splitlines()
    run = [line for command in commands for line in MAKE.get(command, [command.removeprefix("python -m ")])]
    if shutil.which("g++") is not None:  # the emulated GPU compiles CUDA C with it
        run.append("pytest -q -p no:cacheprovider tests/cuda/test_pointwise.py")
    for line in run:
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        if "tests/cuda" in line:
            environment |= {"DEVICE": "emulator", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line)], cwd=copy, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"python -m {line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        if "dispatch.show" in line:
            assert "kernels/compiled/pointwise.squareplus" in done.stdout
            assert "cuda: kernels/cuda/pointwise.squareplus" in done.stdout


def test_the_pages_examples_run():
    blocks = blocks_of(PAGE)
    assert len(blocks) >= 2
    before = set(OPS)
    scope: dict = {}
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), scope)
    finally:
        for name in set(OPS) - before:  # the demonstrations leave no trace
            del OPS[name]
            for owner in (name, f"{name}_"):
                FUNCTIONS.pop(owner, None)
                if owner in vars(Tensor):
                    delattr(Tensor, owner)
