"""Ranks PyTorch's names by how many packages use them, and says which are here: the table in docs/ecosystem.md.

python -m tools.names_in_use FOLDER            prints it; FOLDER has the sources of one package per folder
python -m tools.names_in_use FOLDER --write    puts it into the page

The packages are parsed and not run; their tests, examples, benchmarks and documentation are left out. Needs torch:
only names that it has count.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tensorgrad.compat.names_here import ABSENT_HERE, PRESENT, REFUSED, found
from tensorgrad.compat.names_used import PACKAGES, names_used

PAGE = Path(__file__).parent.parent / "docs" / "ecosystem.md"
MARK = "<!-- names in use: written by python -m tools.names_in_use -->"
END = "<!-- end of names in use -->"
USED_BY = 3  # packages: what fewer use is left out
_LEFT_OUT = re.compile(
    r"^(tests?|testing|examples?|docs?|benchmarks?|tutorials?|notebooks?|scripts?)$|^(test_|conftest)"
)


def in_package(folder: Path) -> set[str]:
    """The names that the files of a package use."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        if any(_LEFT_OUT.search(part) for part in path.relative_to(folder).parts):
            continue
        source = path.read_bytes()
        if b"torch" in source:
            try:
                names.update(use.name for use in names_used(source))
            except (SyntaxError, ValueError):  # written for another Python
                continue
    return names


@functools.cache
def in_torch(name: str) -> str | None:
    """The part of a name that is a module, class, function or value of PyTorch's; None if PyTorch does not have it."""
    first, *rest = name.split(".")
    value: Any = import_module(first)
    place = first
    for part in rest:
        if place in ("torch.ops", "torch.classes"):
            return None
        inner = getattr(value, part, None)
        if inner is None and not hasattr(value, part):
            try:
                inner = import_module(f"{place}.{part}") if isinstance(value, ModuleType) else None
            except BaseException:  # a module that needs what is not installed
                inner = None
            if inner is None:
                return None
        value, place = inner, f"{place}.{part}"
        if not isinstance(value, ModuleType) and not inspect.isclass(value):
            break
    # What PyTorch's files import themselves, such as `torch.nn.functional.math`, is not a name of PyTorch's.
    return None if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in PACKAGES else place


def count(folder: Path) -> tuple[list[str], Counter[str]]:
    """The packages in a folder, and how many of them use each name."""
    used: Counter[str] = Counter()
    packages = []
    for package in sorted(path for path in folder.iterdir() if path.is_dir()):
        names = {place for name in in_package(package) if (place := in_torch(name)) is not None}
        if names:
            packages.append(package.name)
            used.update(names)
    return packages, used


def table(packages: list[str], used: Counter[str]) -> str:
    """The section of the page."""
    states: dict[str, list[str]] = {PRESENT: [], ABSENT_HERE: [], REFUSED: []}
    reasons: dict[str, str] = {}
    rows: Counter[str] = Counter()
    often = [name for name, number in used.items() if number >= USED_BY]
    for name in often:
        state, place, reason = found(name)
        states[state].append(name)
        if state != PRESENT:
            rows[place] = max(rows[place], used[name])
            reasons[place] = reason if state == REFUSED else "not included"
    share = len(states[PRESENT]) / max(len(often), 1)
    lines = [
        f"{len(packages)} packages were read, {len(used):,} names of PyTorch's are used in them, {len(often):,} by "
        f"{USED_BY} packages or more. Of these **{len(states[PRESENT]):,} are here ({share:.1%})**, "
        f"{len(states[REFUSED])} can be imported and raise an error, with the reason, when they are used, and "
        f"{len(states[ABSENT_HERE])} are absent. Whether what is here does what PyTorch's does, [another "
        "page](coverage.md) says.",
        "",
        "| name (in `torch`) | packages | |",
        "|---|---:|---|",
        *(
            f"| `{name.removeprefix('torch.')}` | {number} | {reasons[name]} |"
            for name, number in sorted(rows.items(), key=_by_rank)
        ),
    ]
    return "\n".join(lines)


def _by_rank(row: tuple[str, int]) -> tuple[int, str]:
    return -row[1], row[0]


def main(arguments: list[str]) -> int:
    """Counts, and prints the section or writes it."""
    folder, *options = arguments
    warnings.simplefilter("ignore")
    text = table(*count(Path(folder)))
    if options != ["--write"]:
        print(text)
        return 0
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
