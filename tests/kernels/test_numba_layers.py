"""The folders of compiled kernels import only downwards: runtime, simd, the families, and above them the table."""

import ast
from pathlib import Path

import tensorgrad

ROOT = Path(tensorgrad.__file__).parent
HERE = ROOT / "kernels" / "compiled"
PREFIX = "tensorgrad.kernels.compiled."


def imported(path):
    """The files of kernels/compiled that a file imports, also inside of functions; each as a path without ".py"."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and ((node.module or "") + ".").startswith(PREFIX):
            for alias in node.names:
                names = f"{node.module}.{alias.name}", node.module
                files = [HERE / Path(*name.removeprefix(PREFIX).split(".")) for name in names if name != PREFIX[:-1]]
                found |= {file for file in files if file.with_suffix(".py").is_file()}
    return {file.relative_to(HERE).as_posix() for file in found}


IMPORTS = {p.relative_to(HERE).with_suffix("").as_posix(): imported(p) for p in HERE.rglob("*.py")}


def test_runtime_imports_nothing_above_it():
    for name, files in IMPORTS.items():
        allowed = {"runtime": ("runtime/",), "simd": ("runtime/", "simd/")}.get(name.partition("/")[0], ("",))
        assert all(file.startswith(allowed) for file in files), (name, files)


def test_families_know_nothing_of_the_table():
    above = {"table", "compiling", "verify"}
    for name, files in IMPORTS.items():
        assert name in above or not files & above, (name, files)
