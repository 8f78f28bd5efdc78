"""The package keeps its structure: layers import downwards, no import cycles, light imports, current stubs."""

import ast
import functools
import importlib
import re
import shutil
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

import tensorgrad
from tests.support.processes import environment, not_copied, output_of, run_python

ROOT = Path(tensorgrad.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@functools.cache
def entries() -> dict[str, int]:
    """The layers of docs/architecture.md: file, folder (`autograd/`) or pattern (`*.py`) -> number."""
    table = (ROOT.parent / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", table, flags=re.MULTILINE)
    return {name: int(number) for number, names in rows for name in re.findall(r"`(.*?)`", names)}


def layer(file: str) -> int | None:
    """The layer of a file: its own entry, else that of the innermost folder that has one."""
    around = [f"{folder.as_posix()}/" for folder in Path(file).parents[:-1]] or ["*.py"]
    return next((entries()[name] for name in [file, *around] if name in entries()), None)


def parts_not_counted(tree: ast.Module) -> set[int]:
    """Returns the parts of a file whose imports do not count: for type checkers only, or in `__getattr__` or `__dir__`.

    PyTorch has some names in files below those that define them (`nn.parameter.UninitializedParameter` is a subclass of
    `nn.parameter.Parameter`). Such a file finds them on access: it does not need them, and nothing in it uses them.
    """
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            parts += node.body
    branches = [branch for node in tree.body if isinstance(node, ast.If) for branch in (*node.body, *node.orelse)]
    for node in (*tree.body, *branches):
        if isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__"):
            parts.append(node)
    return {id(node) for part in parts for node in ast.walk(part)}


def file_of(name: str) -> str | None:
    """Returns the file of a module, if the package has such a module."""
    inside = name.replace(".", "/").removeprefix("tensorgrad").lstrip("/")
    possible = f"{inside}.py", f"{inside}/__init__.py".lstrip("/"), f"compat/names/{inside}.py"
    return next((file for file in possible if file in FILES), None)


@functools.cache
def imports(file: str) -> set[str]:
    """Returns the files of the package that a file imports, at the top level or in its functions."""
    tree = ast.parse((ROOT / file).read_text())
    package = ".".join(["tensorgrad", *Path(file.removeprefix("compat/names/")).parts[:-1]])
    rest = parts_not_counted(tree)
    found: set[str | None] = set()
    for node in ast.walk(tree):
        if id(node) in rest:
            continue
        if isinstance(node, ast.Import):
            found |= {file_of(alias.name) for alias in node.names if alias.name.partition(".")[0] == "tensorgrad"}
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            if module.partition(".")[0] == "tensorgrad":
                found |= {file_of(f"{module}.{alias.name}") or file_of(module) for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            if isinstance(name, ast.Constant) and name.value.partition(".")[0] == "tensorgrad":
                found.add(file_of(name.value))
    return {other for other in found if other is not None and other != file}


def circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Returns the groups of files that import each other, directly or not (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_ones: list[str] = []
    done: set[str] = set()
    groups = []

    def visit(file: str) -> None:
        number[file] = low[file] = len(number)
        open_ones.append(file)
        for other in graph[file] - done:
            if other not in number:
                visit(other)
            low[file] = min(low[file], low[other])
        if low[file] == number[file]:
            group = set(open_ones[open_ones.index(file) :])
            del open_ones[open_ones.index(file) :]
            done.update(group)
            groups.append(group)

    for file in graph:
        if file not in number:
            visit(file)
    return (group for group in groups if len(group) > 1)


def test_the_table_of_layers_names_what_is_there():
    assert sorted(set(entries().values())) == list(range(len(set(entries().values()))))
    missing = [name for name in entries() if name != "*.py" and not (ROOT / name).exists()]
    assert not missing, f"docs/architecture.md names {missing}, which do not exist"
    unlisted = [file for file in FILES if layer(file) is None]
    assert not unlisted, f"no layer of docs/architecture.md contains {unlisted}"


def test_a_folder_is_on_one_layer():
    layers: dict[str, set] = {}
    for file in FILES:
        folder = Path(file).parent.as_posix()
        alone = folder == "." or file == "dispatch/show.py"  # a command that looks at everything
        layers.setdefault(file if alone else folder, set()).add(layer(file))
    assert not [folder for folder, found in layers.items() if len(found) > 1]


def test_modules_that_python_finds_elsewhere_hide_none():
    """`compat/names/` is on the path of the package, and its folders on that of the packages of their names."""
    names = ROOT / "compat" / "names"
    for path in names.rglob("*.py"):
        place = path.relative_to(names)
        assert path.name != "__init__.py", f"{path}: its modules would be loaded twice, by two names"
        assert not (ROOT / place).exists() and not (ROOT / place).with_suffix("").exists(), place
        name = ".".join(("tensorgrad", *place.with_suffix("").parts))
        assert Path(importlib.import_module(name).__file__) == path


@pytest.mark.parametrize("file", FILES)
def test_layers_import_only_downwards(file):
    above = {f"{other} (layer {layer(other)})" for other in imports(file) if layer(other) > layer(file)}
    assert not above, f"{file} (layer {layer(file)}) imports {', '.join(sorted(above))} above it"


def test_no_files_import_each_other_in_a_circle():
    # The list of names at the top imports everything, and the highest layer may use it.
    graph = {file: imports(file) - {"__init__.py"} for file in FILES}
    found = [" ".join(sorted(group)) for group in circles(graph)]
    assert not found, "files that import each other:\n" + "\n".join(found)


IMPORTED = re.compile(r"^\s*(?:from|import) +((?:tensorgrad|benchmarks|examples|tests|tools)\.[\w.]+)", re.MULTILINE)


def test_modules_that_are_imported_exist():
    """Also within functions that few runs call, and in programs that are written as text."""
    lost = []
    for folder in ("benchmarks", "examples", "tests", "tools"):
        for path in sorted((ROOT.parent / folder).rglob("*.py")):
            for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
                file = ROOT.parent.joinpath(*name.split("."))
                if not file.with_suffix(".py").exists() and not (file / "__init__.py").exists() and not bound(name):
                    lost.append(f"{path.relative_to(ROOT.parent)}: {name}")
    assert not lost, "\n".join(lost)


def bound(name: str) -> bool:
    """Whether a name that belongs to no file can be imported, as those that are only in `sys.modules`."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_loops_over_imported_modules_are_over_a_copy():
    """Another thread may import meanwhile: "dictionary changed size during iteration"."""
    found = []
    for file in FILES:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        loops = (n.iter for n in ast.walk(tree) if isinstance(n, ast.For | ast.comprehension))
        found += [f"{file}: {text}" for text in map(ast.unparse, loops) if text.startswith("sys.modules")]
    assert not found


def test_importing_loads_no_array_kernels_and_no_random_numbers():
    program = (
        "import sys; import tensorgrad, tensorgrad.kernels.array as kernels; "
        "print(*[m for m in sys.modules if m.startswith((kernels.__name__ + '.', 'numpy.random'))]); "
        "print(*[n for n in vars(kernels) if n[:2] != '__'])"
    )
    loaded, named = output_of(program).split("\n")[:2]
    assert not loaded
    files = {file.stem for file in (ROOT / "kernels" / "array").glob("*.py")} - {"__init__"}
    assert set(named.split()) - {"later"} == files, "kernels/array/__init__.py names its files"


def test_importing_loads_no_layers():
    """They take a fifth of the time that everything else takes, and come with the first use of `torch.nn`."""
    program = "import sys, tensorgrad; print(*[m for m in sys.modules if m.startswith('tensorgrad.nn.module')])"
    assert not output_of(program).split()


def test_importing_brings_no_optional_package():
    program = (
        "import sys, numpy; before = set(sys.modules); import tensorgrad; "
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    output = output_of(program)
    optional = {
        "torch", "numba", "cupy", "ml_dtypes", "scipy", "tqdm", "sklearn", "threadpoolctl", "matplotlib", "safetensors",
        "hypothesis", "pytest", "graphviz",
    }  # fmt: skip
    assert "tensorgrad" in output.split()
    assert not optional & set(output.split())


def test_the_stubs_are_current():
    result = run_python(None, "-m", "tensorgrad._stubs", "--check")
    assert result.returncode == 0, f"run `python -m tensorgrad._stubs`:\n{result.stdout}{result.stderr}"


def test_the_build_writes_the_stubs_which_git_does_not_track(tmp_path):
    if not (ROOT.parent / "hatch_build.py").exists():
        pytest.skip("not a checkout")
    shutil.copytree(ROOT, tmp_path / "tensorgrad", ignore=not_copied("images"))
    for file in (tmp_path / "tensorgrad").rglob("*.pyi"):
        file.unlink()
    renamed = tmp_path / "tensorgrad" / "nn" / "modules" / "renamed.pyi"
    renamed.write_text((ROOT / "nn" / "modules" / "linear.pyi").read_text())
    output = output_of(f"""
        import importlib.util, sys, types
        for name in ("", ".builders", ".builders.hooks", ".builders.hooks.plugin", ".builders.hooks.plugin.interface"):
            sys.modules["hatchling" + name] = types.ModuleType("hatchling" + name)
        sys.modules["hatchling.builders.hooks.plugin.interface"].BuildHookInterface = object
        spec = importlib.util.spec_from_file_location("hatch_build", {str(ROOT.parent / "hatch_build.py")!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        hook, data = module.CustomBuildHook(), {{"artifacts": []}}
        hook.root = {str(tmp_path)!r}
        hook.initialize("editable", data)
        print(data["artifacts"])
    """)
    assert "/tensorgrad/**/*.pyi" in output and not renamed.exists()
    for file in ROOT.rglob("*.pyi"):
        assert (tmp_path / "tensorgrad" / file.relative_to(ROOT)).read_text() == file.read_text(), file
    assert "*.pyi" in (ROOT.parent / ".gitignore").read_text()


def test_show_prints_every_function_that_an_op_has():
    shown = output_of(None, "-m", "tensorgrad.dispatch.show", "mul", "layer_norm")
    for text in (
        "def mul(input, other, *, out=None):", "def mul(input, other):", "def MulBackward0(node, grads):",
        "def on_arrays(node, grads):", "else the array module's multiply", "def _layer_norm_twin(",
    ):  # fmt: skip
        assert text in shown, text
    unknown = run_python(None, "-m", "tensorgrad.dispatch.show", "mull")
    assert unknown.returncode == 1 and "close: mul" in unknown.stderr


def test_debug_ladder():
    program = "import tensorgrad as t; x = t.ones(2, requires_grad=True); (x * 2).sum().backward()"
    shown = [], ["devices"], ["mul(float32[2], 2) -> float32[2]"], ["numpy.multiply"]
    for level, expected in enumerate(shown):
        result = run_python(program, env=environment(DEBUG=str(level)))
        assert result.returncode == 0 and bool(result.stderr) == bool(level), result.stderr
        for text in expected:
            assert text in result.stderr
    twin = "import tensorgrad as t; x = t.empty(2, device='meta'); t.nn.functional.mse_loss(x, x)"
    result = run_python(twin, env=environment(DEBUG="4"))
    assert result.returncode == 0 and "twin" in result.stderr
    result = run_python(program, env=environment(DEBUG="help"))
    assert result.returncode == 0, result.stderr
    told = [line.partition("DEBUG=")[2].partition(" ")[0] for line in result.stderr.splitlines()]
    assert told == ["1", "2", "3", "4", "help"]


def test_loaded_modules_are_read_from_a_copy():
    """Another thread may import meanwhile: `dictionary changed size during iteration`."""
    found = []
    for file in FILES:
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.For | ast.comprehension):
                read = ast.unparse(node.iter)
                if re.fullmatch(r"_?sys\.modules(\.(items|keys|values)\(\))?", read):
                    found.append(f"{file}: {ast.unparse(node)}")
    assert not found
