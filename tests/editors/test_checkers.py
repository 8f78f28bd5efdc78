"""What editors and type checkers say of programs: nothing of correct ones; of wrong ones, what they say with PyTorch's
types. Pyright is what Visual Studio Code and others run; it comes from `pip install pyright[nodejs]`."""

import importlib
import importlib.util
import inspect
import json
import keyword
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorgrad.compat import type_stubs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
MISTAKES = sorted((HERE / "mistakes").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

PYRIGHT = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def needs_pyright():
    if PYRIGHT is None:
        pytest.skip("pyright is not installed: pip install pyright[nodejs]")
    if subprocess.run([PYRIGHT, "--version"], capture_output=True).returncode:
        pytest.skip("pyright does not run here: it has to fetch itself, or a JavaScript engine, and cannot")


def as_tensorgrad(text: str) -> str:
    """A program for torch as one for `import tensorgrad as torch`."""
    text = re.sub(r"^import torch$", "import tensorgrad as torch", text, flags=re.M)
    return re.sub(r"^(import|from) torch\b(?! as)", r"\1 tensorgrad", text, flags=re.M)


def wrong_lines(file: Path, *ends: str) -> set[int]:
    return {i for i, line in enumerate(file.read_text().splitlines(), 1) if line.endswith(ends)}


EVERY, WITH_TORCH = ("# wrong", "# wrong: here only"), ("# wrong",)


def site_packages(folder: Path, *, with_torch: bool = False) -> Path:
    """An environment that has tensorgrad as pip installs it: not a project's own source, to which laxer rules apply."""
    site = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for name in ("numpy", "ml_dtypes", "torch", "tqdm", "matplotlib"):
        spec = importlib.util.find_spec(name) if name != "torch" or with_torch else None
        if spec is not None and spec.origin is not None:
            (site / name).symlink_to(Path(spec.origin).parent)
    if not with_torch:
        (site / "tensorgrad").symlink_to(ROOT / "tensorgrad")
    return site


def pyright(folder: Path) -> dict[str, dict[int, str]]:
    """What pyright says of the programs in a folder: for each file the lines with an error, and its rules."""
    config = {"venvPath": str(folder), "venv": "env", "include": ["."], "exclude": ["env", "stubs"],
              "stubPath": str(folder / "stubs"), "pythonVersion": f"3.{sys.version_info[1]}",
              "reportUnusedExpression": False, "reportMissingModuleSource": False}  # fmt: skip
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [str(PYRIGHT), "-p", str(folder), "--outputjson"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)
    found: dict[str, dict[int, str]] = {}
    for each in said["generalDiagnostics"]:  # the examples read `x.grad` without asking whether there is one
        if each["severity"] == "error":
            name = str(Path(each["file"]).relative_to(folder))
            line = each["range"]["start"]["line"] + 1
            if not (name in {file.name for file in EXAMPLES} and "Optional" in each.get("rule", "")):
                found.setdefault(name, {})[line] = f"{each.get('rule')}: {each['message']}"
    assert said["summary"]["filesAnalyzed"] > 1, said
    return found


# What examples use beside this library, whose own types are not what this is about.
OF_OTHERS: dict[str, tuple[str, ...]] = {"sklearn": ("datasets",), "fastapi": ("responses",), "uvicorn": ()}
MODULES = [
    "", "amp", "autograd", "autograd.function", "autograd.functional", "backends.cuda", "cuda", "distributed",
    "distributions", "fft", "func", "futures", "fx", "hub", "jit", "linalg", "masked", "multiprocessing", "nested",
    "nn", "nn.attention", "nn.functional", "nn.init", "nn.parallel", "nn.parameter", "nn.utils", "nn.utils.parametrize",
    "nn.utils.prune", "nn.utils.rnn", "optim", "optim.lr_scheduler", "optim.swa_utils", "overrides", "profiler",
    "random", "return_types", "serialization", "signal.windows", "sparse", "special", "types", "utils",
    "utils.checkpoint", "utils.data", "utils.data.distributed", "utils.data.sampler", "utils.hooks",
]  # fmt: skip


def every_name() -> str:
    """A program that uses every public name of the modules."""
    lines = []
    for name in MODULES:
        full = ".".join(filter(None, ("tensorgrad", name)))
        module = importlib.import_module(full)
        lines.append(f"import {full} as {full.replace('.', '_')}")
        for each in sorted(vars(module).get("__all__") or (n for n in dir(module) if n[0] != "_")):
            value = getattr(module, each)
            given = "__all__" in vars(module) or hasattr(module, "__path__")
            home = getattr(value, "__module__", None) or (full if given else "")
            if (
                (given or home == full)
                and home.startswith("tensorgrad")
                and not inspect.ismodule(value)
                and each != "whole"
            ):
                lines += [] if keyword.iskeyword(each) else [f"{full.replace('.', '_')}.{each}"]
    assert len(lines) > 1500
    return "\n".join(lines) + "\n"


@pytest.mark.usefixtures("needs_pyright")
def test_pyright_finds_the_mistakes_and_nothing_else(tmp_path):
    """Of the programs, with `import tensorgrad as torch` and with `import torch`, of the examples and of every name."""
    site_packages(tmp_path / "env")
    assert type_stubs.write(str(tmp_path / "stubs" / "torch")) > 100
    for kind in ("programs", "mistakes"):
        shutil.copytree(HERE / kind, tmp_path / "as_torch" / kind)
    for file in (*PROGRAMS, *MISTAKES):
        copy = tmp_path / "as_tensorgrad" / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(as_tensorgrad(file.read_text()))
    for file in EXAMPLES:
        shutil.copy(file, tmp_path / file.name)
    (tmp_path / "names.py").write_text(every_name())
    anything = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"
    for package, files in OF_OTHERS.items():
        (tmp_path / "stubs" / package).mkdir()
        for file in ("__init__", *files):
            (tmp_path / "stubs" / package / f"{file}.pyi").write_text(anything)
    found = pyright(tmp_path)
    for spelling in ("as_torch", "as_tensorgrad"):
        for file in MISTAKES:
            lines = found.pop(f"{spelling}/mistakes/{file.name}", {})
            assert set(lines) == wrong_lines(file, *EVERY), (spelling, file.name, lines)
    assert not found


@pytest.mark.usefixtures("needs_pyright")
@needs_torch
def test_pyright_finds_the_same_mistakes_with_torch(tmp_path):
    site_packages(tmp_path / "env", with_torch=True)
    for file in MISTAKES:
        shutil.copy(file, tmp_path / file.name)
    found = pyright(tmp_path)
    wanted = {file.name: wrong_lines(file, *WITH_TORCH) for file in MISTAKES}
    assert {name: set(lines) for name, lines in found.items()} == wanted


@needs_mypy
def test_mypy_is_strict_and_finds_the_mistakes_and_nothing_else(tmp_path):
    for file in (*PROGRAMS, *MISTAKES):
        (tmp_path / f"{file.parent.name}_{file.name}").write_text(as_tensorgrad(file.read_text()))
    config = f"[mypy]\nstrict = true\nmypy_path = {ROOT}\n[mypy-tensorgrad.*]\nignore_errors = true\n"
    (tmp_path / "mypy.ini").write_text(config)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "."]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert not said.stderr, said.stderr
    found: dict[str, dict[int, str]] = {}
    for name, line, message in re.findall(r"^([\w./]+):(\d+): error: (.*)$", said.stdout, flags=re.M):
        found.setdefault(Path(name).name, {})[int(line)] = message
    for file in MISTAKES:
        lines = found.pop(f"mistakes_{file.name}", {})
        assert set(lines) == wrong_lines(file, *EVERY), (file.name, lines)
    assert not found
