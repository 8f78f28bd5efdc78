"""A Python environment for each library, without torch. `python -m tests.ecosystem.environments` makes that of
test_quick.py.

Those in which a library's import and programs are measured (`alone`) are made as docs/ecosystem.md tells users to, have
nothing else in them, and are deleted afterwards. Those for recording and for own tests are made once and kept:

Requirements may demand torch. pip runs with tensorgrad's import hook, which answers that torch 2.13.0 is installed, and
with the constraint that it stays so: pip chooses the newest versions that go with it, and installs no torch. To run the
same environment with the real torch, the folder with torch is appended to `sys.path` (by `WITH_TORCH`): all other
packages are the same files.

These environments do not contain tensorgrad: the hook finds it in the checkout that these tests are part of.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache as once
from pathlib import Path

from tests.ecosystem.libraries import LIBRARIES, Library
from tests.support.processes import ROOT

TORCH = "torch==2.13.0"
ALWAYS = ("numpy>=2", "ml_dtypes>=0.4", "pytest>=8", "pytest-timeout>=2.3")
STARTUP = ROOT / "tensorgrad" / "compat" / "startup"
WITH_TORCH = "ECOSYSTEM_TORCH"
_LINE = f"import os, sys; folder = os.environ.get('{WITH_TORCH}'); folder and sys.path.append(folder)\n"


class Unavailable(Exception):
    """An environment that cannot be made, with pip's reason."""


def cache() -> Path:
    """Returns the folder of the environments: the variable TENSORGRAD_ECOSYSTEM, or ~/.cache/tensorgrad/ecosystem."""
    return Path(os.environ.get("TENSORGRAD_ECOSYSTEM") or Path.home() / ".cache" / "tensorgrad" / "ecosystem")


class Environment:
    """One library's environment.

    Args:
        python: Its interpreter.
        enabled: Whether `python -m tensorgrad.compat enable` has run in it.
    """

    def __init__(self, python: Path, enabled: bool = False):
        self.python = python
        self.enabled = enabled

    def run(
        self, arguments: list[str], *, torch: Path | None = None, timeout: float = 600, cwd: Path | None = None, **more
    ) -> subprocess.CompletedProcess:
        """Runs its Python, where `import torch` is tensorgrad, or the real torch in the folder `torch`.

        Its temporary files are deleted when it has ended.

        Args:
            arguments: Python's, such as `["program.py"]`.
            torch: The folder made by `real_torch`; None for tensorgrad.
            timeout: Seconds after which `subprocess.TimeoutExpired` is raised.
            cwd: The folder to run in.
            more: Further variables of the environment.
        """
        with tempfile.TemporaryDirectory(prefix="ecosystem-", ignore_cleanup_errors=True) as temporary:
            return subprocess.run(
                [str(self.python), *arguments],
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=cwd,
                env=self.variables(torch) | {"TMPDIR": temporary} | more,
            )

    def variables(self, torch: Path | None = None) -> dict[str, str]:
        """Returns the variables of a process of `run`: one thread, no network, tensorgrad or the real torch."""
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "TENSORGRAD"))}
        variables |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        variables |= {"MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        if torch is not None:
            return variables | {WITH_TORCH: str(torch)}
        if self.enabled:
            return variables
        return variables | {"TENSORGRAD_COMPAT": "1", "PYTHONPATH": str(STARTUP)}

    def version(self, name: str) -> str:
        """Returns the version of a package in it."""
        ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
        done = self.run(["-c", ask, name])
        return done.stdout.strip() or "?"

    def packages(self) -> list[str]:
        """Returns the packages in it with their versions, without pip and the torch that is none."""
        ask = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        found = json.loads(self.run(["-c", ask]).stdout)
        return [f"{name} {found[name]}" for name in sorted({*found} - {"pip", "setuptools", "torch"}, key=str.lower)]


@contextmanager
def alone(library: Library) -> Iterator[Environment]:
    """Yields a new environment, made as docs/ecosystem.md tells users to, with the library and what it asks for only.

    Args:
        library: The library.

    Raises:
        Unavailable: If it cannot be made, or torch came with it.
    """
    with tempfile.TemporaryDirectory(prefix=f"{library.name}-") as folder:
        made = Environment(_python(Path(folder)), enabled=True)
        venv.create(folder, with_pip=True)
        _pip(made.python, ["install", f"{_wheel()}[bfloat16]"])
        done = made.run(["-m", "tensorgrad.compat", "enable"])
        if done.returncode:
            raise Unavailable(done.stderr.strip())
        _pip(made.python, ["install", TORCH, *library.requirements])
        _refuse_torch(made)
        yield made


@once
def _wheel() -> Path:
    """Returns this checkout's wheel, built once by a process that needs it."""
    folder = Path(tempfile.mkdtemp(prefix="tensorgrad-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _pip(Path(sys.executable), ["wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    return next(folder.glob("*.whl"))


def environment(library: Library, *, own: bool = False) -> Environment:
    """Returns a library's environment, made now if it does not exist.

    Args:
        library: The library.
        own: Whether its own tests' requirements are installed, too.

    Raises:
        Unavailable: If it cannot be made.
    """
    extra = library.own.requirements if own and library.own else ()
    return _made(library.name, (*library.requirements, *extra))


def quick_environment() -> Environment:
    """Returns the one environment with all `quick` libraries, and what the examples need: continuous integration has
    no time for ten.

    Raises:
        Unavailable: If it cannot be made.
    """
    needed = (requirement for library in LIBRARIES if library.quick for requirement in library.requirements)
    return _made("quick", tuple(dict.fromkeys((*needed, "scikit-learn"))))


def _made(name: str, requirements: tuple[str, ...]) -> Environment:
    wanted = [*ALWAYS, *requirements]
    key = hashlib.sha256(json.dumps([wanted, sys.version_info[:2]]).encode()).hexdigest()[:8]
    folder = cache() / f"{name}-{key}"
    made = Environment(_python(folder))
    if (folder / "complete").exists():
        return made
    with _removed_on_failure(folder):
        venv.create(folder, with_pip=False)
        constraints = folder / "constraints.txt"
        constraints.write_text(TORCH + "\n")
        arguments = ["install", "--no-compile", "-c", str(constraints), *wanted]  # most files are never imported
        _pip(made.python, arguments, PYTHONPATH=str(STARTUP), TENSORGRAD_COMPAT="1")
        (_refuse_torch(made) / "ecosystem.pth").write_text(_LINE)
        (folder / "complete").write_text("\n".join(wanted) + "\n")
    return made


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    """Removes what was there before, and what was made if that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def kept() -> tuple[int, int]:
    """Returns how many environments there are in the cache, and how many bytes they take."""
    folders = [folder for folder in cache().glob("*") if folder.is_dir()]
    files = (file for folder in folders for file in folder.rglob("*"))
    return len(folders), sum(file.lstat().st_blocks * 512 for file in files)


def delete() -> None:
    """Deletes the environments in the cache."""
    for folder in cache().glob("*"):
        shutil.rmtree(folder)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _refuse_torch(made: Environment) -> Path:
    """Returns the folder of an environment's packages. Raises: Unavailable if torch is among them."""
    site = subprocess.run(
        [made.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    )
    if Path(site.stdout.strip(), "torch").exists():
        raise Unavailable("pip installed torch, in whose place tensorgrad runs")
    return Path(site.stdout.strip())


def real_torch() -> Path:
    """Returns a folder with the real torch, installed now if it does not exist.

    Raises:
        Unavailable: If it cannot be installed.
    """
    folder = cache() / f"{TORCH.replace('==', '-')}-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (folder / "complete").exists():
        with _removed_on_failure(folder):
            folder.mkdir(parents=True)
            _pip(Path(sys.executable), ["install", "--target", str(folder), TORCH])
            (folder / "complete").write_text(f"{TORCH}\n")
    return folder


def _pip(python: Path, arguments: list[str], **variables: str) -> None:
    """Runs this Python's pip for another. Raises: Unavailable with its last lines if it fails."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TENSORGRAD_COMPAT"))}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *arguments, *quiet],
        capture_output=True,
        text=True,
        env=clean | variables,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-3:]
        raise Unavailable("pip: " + " ".join(errors)[:500])


if __name__ == "__main__":
    quick_environment()
