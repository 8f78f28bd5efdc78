"""Which tests the files changed since main can affect, by what imports what.

A test depends on the files of tests/ that it imports, and on what those import; and on the package:

- every test depends on the files that `import tensorgrad` runs;
- the others count for tests that import them, or name them or their subpackage, as in `torch.distributed`;
- compiled kernels count for tests whose results depend on them (BOTH_KERNELS in tools/phases.py).

Other files (pages, examples, benchmarks, tools) affect the tests that name them or their folder.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

from phases import BOTH_KERNELS, matches

# A line `from X import (Y, ...)`, `from X import Y, ...` or `import X, ...`; the names in it, not what `as` calls them.
IMPORT = re.compile(r"^[ \t]*(?:from +([.\w]+) +import +(?:\(([^)]*)\)|(.+))|import +(.+))", re.MULTILINE)
NAME = re.compile(r"(?:^|,)\s*([.\w]+)")
COMMENT = re.compile(r"[#;].*")
EVERYTHING = ("pyproject.toml", "Makefile", "tests/conftest.py", "tools/progress.py")


@dataclass
class Affected:
    """The chosen test files, and a text about what was chosen and what was left out."""

    files: list[Path]
    text: str


def changed_files(root: Path) -> list[str]:
    """Returns the paths of the files that differ from main, or are not committed. Raises: SystemExit without git."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"--changed asks git what differs from main: {done.stderr.strip()}")
        return done.stdout.splitlines()

    base = git("merge-base", "main", "HEAD")[0]
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


class Graph:
    """What the Python files below a folder import."""

    def __init__(self, root: Path):
        self.root = root

    @functools.cache  # noqa: B019
    def file_of(self, module: str) -> str | None:
        """Returns the path of a module's file, if it is in the project."""
        stem = module.replace(".", "/")
        possible = f"{stem}.py", f"{stem}/__init__.py", stem.replace("tensorgrad", "tensorgrad/compat/names", 1) + ".py"
        return next((name for name in possible if (self.root / name).exists()), None)

    @functools.cache  # noqa: B019  (one graph lives as long as the process)
    def imports(self, file: str) -> frozenset[str]:
        """Returns the files that a file imports at any time, or that a program in its text does.

        By lines: Python's parser, and a walk through all that it returns, would take a hundred times as long.
        """
        try:
            text = (self.root / file).read_text(encoding="utf-8")
        except OSError:
            return frozenset()
        package = ".".join(Path(file).parts[:-1])
        found: set[str | None] = set()
        for origin, several, one, modules in IMPORT.findall(text):
            names = NAME.findall(COMMENT.sub("", several or one or modules))
            if origin:
                level = len(origin) - len(origin.lstrip("."))
                module = resolve_name(origin, package) if 0 < level <= package.count(".") + 1 else origin.lstrip(".")
                names = [module, *(f"{module}.{name}" for name in names)]
            found |= {self.file_of(name) for name in names}
        return frozenset(found - {None, file})  # type: ignore[arg-type]

    def closure(self, files: Iterable[str]) -> set[str]:
        """Returns the files and all that they import, directly or not."""
        found: set[str] = set()
        new = set(files)
        while new:
            found |= new
            new = set().union(*map(self.imports, new)) - found
        return found


@functools.cache
def graph(root: Path) -> Graph:
    """Returns the graph of a project, whose files are read once in a process."""
    return Graph(root)


@functools.cache
def imported_with_the_package(root: Path) -> set[str]:
    """Returns the paths of the files that `import tensorgrad` runs."""
    ask = "import sys, tensorgrad; print(*(getattr(m, '__file__', None) for m in [*sys.modules.values()]), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=root, check=True)
    files = (Path(line) for line in done.stdout.splitlines())
    return {file.relative_to(root).as_posix() for file in files if file.is_relative_to(root / "tensorgrad")}


def affected(root: Path, tests: list[Path], changed: list[str] | None = None) -> Affected:
    """Returns the tests that changed files can affect.

    Args:
        root: The project's folder.
        tests: All test files.
        changed: Paths relative to `root`; by default those that differ from main.
    """
    changed = changed_files(root) if changed is None else changed
    known = graph(root)
    if not changed:
        return Affected([], "nothing differs from main: no test was chosen")
    whole = [name for name in changed if name in EVERYTHING or name.startswith("tests/support/device")]
    always = imported_with_the_package(root)
    of_package = {name for name in changed if name.startswith("tensorgrad/")}
    others = [name for name in changed if not name.startswith(("tensorgrad/", "tests/"))]
    everyone = bool(whole) or bool(of_package & always)
    chosen = tests if everyone else [t for t in tests if _affects(known, root, t, {*changed}, of_package, others)]
    left = sorted({t.parent.relative_to(root).as_posix() for t in {*tests} - {*chosen}})
    reason = next(iter([*whole, *sorted(of_package & always)]), None)
    text = f"{len(changed)} files differ from main: {len(chosen)} of {len(tests)} test files can be affected"
    if everyone:
        text += f" (all of them depend on {reason})"
    elif left:
        text += f"; left out are {len(tests) - len(chosen)} in {', '.join(left)}"
    return Affected(list(chosen), text)


def _affects(graph: Graph, root: Path, test: Path, changed: set[str], of_package: set[str], others: list[str]) -> bool:
    """Returns whether one test file depends on a changed file that not every test depends on."""
    name = test.relative_to(root).as_posix()
    around = [f"{folder.as_posix()}/conftest.py" for folder in Path(name).parents[:-1]]
    if graph.closure([name, *around]) & {file for file in changed if file.startswith("tests/")}:
        return True
    own = {file for file in graph.closure([name]) if not file.startswith("tensorgrad/")}
    text = "".join((root / file).read_text(encoding="utf-8") for file in own if (root / file).exists())
    direct = {file for part in own for file in graph.imports(part) if file.startswith("tensorgrad/")}
    named = graph.closure(direct - {"tensorgrad/__init__.py"})
    for file in of_package:
        folder = Path(file).parts[1]
        compiled = file.startswith("tensorgrad/kernels/") and matches(test, root / "tests", BOTH_KERNELS)
        if file in named or compiled or re.search(rf"\.{re.escape(folder.removesuffix('.py'))}\b", text):
            return True
    words = test.read_text(encoding="utf-8")
    return any(Path(file).name in words or f'"{Path(file).parts[0]}"' in words for file in others)
