"""Says which names of PyTorch's a program and its libraries use that are not here, before anything runs.

Nothing is imported of them: their files are parsed (names_used.py), and each name is looked up (names_here.py).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import NamedTuple

from tensorgrad.compat.names_here import PRESENT, REFUSED, found
from tensorgrad.compat.names_used import Use, names_used

_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"}
_SHOWN = 20  # lines for one library
_OURS = {"torch", "functorch", "tensorgrad"}
File = Path | zipfile.Path  #: one that is installed or the program's own, or one in a wheel


class Absence(NamedTuple):
    """A name that is not here, and the first place that uses it."""

    name: str
    file: File
    use: Use
    reason: str  #: why it refuses; empty if it is absent altogether

    @property
    def stops(self) -> bool:
        """Whether the import of the file fails: the name is absent, used at once, and nothing is prepared for that."""
        return not self.reason and self.use.at_import and not self.use.guarded

    def __str__(self) -> str:
        if self.reason:
            effect = f"raises an error when it is used: {self.reason}"
        elif self.use.guarded:
            effect = "absent; the code is prepared for that"
        else:
            effect = "absent: the import fails" if self.use.at_import else "absent: the call fails"
        return f"{self.file}:{self.use.line}: {self.name}: {effect}"


def absences(files: Iterable[File]) -> list[Absence]:
    """Returns the names that are not here, each once, where it matters most; those that stop an import first."""
    worst: dict[str, Absence] = {}
    for file in files:
        for use in _read(file):
            state, place, reason = found(use.name)
            if state != PRESENT:
                here = Absence(place, file, use, reason if state == REFUSED else "")
                if place not in worst or _rank(here) < _rank(worst[place]):
                    worst[place] = here
    return sorted(worst.values(), key=lambda absence: (_rank(absence), str(absence.file), absence.use.line))


def _rank(absence: Absence) -> int:
    return 0 if absence.stops else 3 if absence.use.guarded else 2 if absence.reason else 1


def _read(file: File) -> list[Use]:
    try:
        source = file.read_bytes()
        return names_used(source) if b"torch" in source else []
    except (OSError, SyntaxError, ValueError):  # what Python cannot read, it cannot run
        return []


def files_in(folder: Path) -> Iterator[Path]:
    """The Python files of a folder, without those of environments and of builds in it."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in _SKIPPED and path.name[0] != "." and not path.is_symlink():
            yield from () if (path / "pyvenv.cfg").exists() else files_in(path)
        elif path.suffix == ".py":
            yield path


def in_wheel(wheel: Path) -> list[File]:
    """The Python files in a wheel, which is neither installed nor unpacked.

    Raises:
        ValueError: If it is not a wheel.
    """
    try:
        archive = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{wheel}: {error}") from None
    return [zipfile.Path(archive, name) for name in sorted(archive.namelist()) if name.endswith(".py")]


def imported(files: Iterable[Path]) -> set[str]:
    """The first parts of the modules that files import."""
    import ast

    names: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.partition(".")[0])
    return names


def requirements(lines: Iterable[str]) -> list[str]:
    """The names of the distributions that lines of a requirements file ask for.

    >>> from tensorgrad.compat.check import requirements
    >>> requirements(["# libraries", "timm>=1.0", "-r other.txt", "peft[all] ; python_version > '3.9'  # LoRA"])
    ['timm', 'peft']
    """
    found = (re.match(r"\s*([A-Za-z0-9][\w.-]*)", line) for line in lines)
    return [match[1] for match in found if match]


def _lines(file: Path, above: tuple[Path, ...] = ()) -> Iterator[str]:
    """The lines of a requirements file, and of those that it names."""
    for line in file.read_text(encoding="utf-8").splitlines():
        yield line
        named = re.match(r"\s*(?:-r|--requirement)[ =]*(\S+)", line)
        if named and (other := (file.parent / named[1]).resolve()) not in (*above, file):
            yield from _lines(other, (*above, file))


def wanted(path: Path) -> list[str]:
    """The distributions that a requirements file (with the files that it names) or a `pyproject.toml` asks for.

    Raises:
        ValueError: If Python cannot read the file: `pyproject.toml` needs Python 3.11.
    """
    if path.suffix != ".toml":
        return requirements(_lines(path.resolve()))
    try:
        import tomllib  # from Python 3.11
    except ModuleNotFoundError:
        raise ValueError(f"{path}: Python reads this format from version 3.11") from None
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    optional = project.get("optional-dependencies", {}).values()
    return requirements([*project.get("dependencies", ()), *(line for lines in optional for line in lines)])


def with_theirs(names: Iterable[str]) -> tuple[dict[str, Distribution], list[str]]:
    """The installed distributions of these names, with all that those ask for; and the names that are not installed."""
    installed: dict[str, Distribution] = {}
    missing: list[str] = []
    waiting = [(name, True) for name in names]
    while waiting:
        name, asked = waiting.pop(0)
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in installed or name in _OURS:
            continue
        try:
            installed[name] = distribution(name)
        except PackageNotFoundError:
            if asked:
                missing.append(name)
            continue
        needs = [line for line in installed[name].requires or () if "extra ==" not in line]
        waiting += [(need, False) for need in requirements(needs)]
    return installed, missing


def report(path: Path) -> tuple[str, bool]:
    """Returns what is to be said about a folder, of programs or of wheels, or a file of requirements, and whether all
    imports work.

    Raises:
        OSError: If there is no such file.
        ValueError: If it cannot be read.
    """
    lines, good = [], True
    if path.is_dir():
        files = list(files_in(path))
        wheels = sorted(path.glob("*.whl"))
        if wheels and not files:
            return _report_of_wheels(wheels, sorted(path.glob("*.tar.gz")))
        own = absences(files)
        lines += _section(str(path), len(files), own)
        good = not any(absence.stops for absence in own)
        places = packages_distributions()
        names = sorted({name for module in imported(files) for name in places.get(module, ())})
    else:
        names = wanted(path)
    installed, missing = with_theirs(names)
    for name, package in sorted(installed.items()):
        files = [Path(str(package.locate_file(file))) for file in package.files or () if file.suffix == ".py"]
        theirs = absences(files)
        if theirs or "torch" in requirements(package.requires or ()):
            lines += _section(f"{name} {package.version}", len(files), theirs)
        good = good and not any(absence.stops for absence in theirs)
    if missing:
        lines.append(f"not installed, so not read: {', '.join(missing)}")
        lines.append("(to read them first: pip download --no-deps -d FOLDER with their names, then check FOLDER)")
    return "\n".join(lines or ["nothing here uses PyTorch"]), good


def _report_of_wheels(wheels: list[Path], sources: list[Path]) -> tuple[str, bool]:
    lines, good = [], True
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        if name.lower() not in _OURS:
            files = in_wheel(wheel)
            theirs = absences(files)
            if theirs or any(b"torch" in file.read_bytes() for file in files):
                lines += _section(f"{name} {version}", len(files), theirs)
            good = good and not any(absence.stops for absence in theirs)
    if sources:
        lines.append(f"not wheels, so not read: {', '.join(source.name for source in sources)}")
    return "\n".join(lines or ["nothing here uses PyTorch"]), good


def _section(title: str, count: int, found: list[Absence]) -> list[str]:
    stops = sum(absence.stops for absence in found)
    if not found:
        return [f"{title}: {count} files, every name of PyTorch's that they use is here"]
    told = f"{title}: {count} files, {len(found)} names of PyTorch's are not here, {stops} of which stop an import"
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [told, *(f"  {absence}" for absence in found[:_SHOWN]), *more]
