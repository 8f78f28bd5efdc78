"""Makes `import torch` mean tensorgrad in every program of a Python environment, by a file in its site-packages.

`python -m tensorgrad.compat enable` writes the file `torch_is_tensorgrad.pth` next to the installed package. Python
reads it when it starts. It looks for the package where every program finds it, so it does not depend on the folder in
which the command was typed. Beside it stand stubs for editors and type checkers (type_stubs.py). The package's list of
files names both: whoever uninstalls the package removes them, too. `disable` removes them, and `status` says whether
the file is there, and what a new process makes of it.
"""

from __future__ import annotations

import contextlib
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions

from tensorgrad.compat import type_stubs
from tensorgrad.system import processes

NAME = "torch_is_tensorgrad.pth"
# Python runs lines that begin with `import`. Without tensorgrad, the line does nothing.
LINE = (
    "import os; from importlib.machinery import PathFinder; s = PathFinder.find_spec('tensorgrad'); "
    "p = s and s.origin and os.path.join(os.path.dirname(s.origin), 'compat', 'startup', 'load.py'); "
    "p and os.path.exists(p) and exec(open(p).read(), {'__file__': p})\n"
)
# What a new process says: whether the hook is there, and the folder of what `torch` is.
_ASK = """
import os, sys
from importlib.machinery import PathFinder
hook = sys.modules.get("tensorgrad.compat.import_hook")
spec = PathFinder.find_spec("torch", [folder for folder in sys.path if folder])
print(bool(hook), hook._ROOT if hook else os.path.dirname(spec.origin) if spec and spec.origin else "", sep="\\n")
"""


def installed() -> Distribution | None:
    """Returns the installed package of this environment; None if tensorgrad is only imported from a folder."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return next(iter(distributions(name="tensorgrad", path=list(dict.fromkeys(folders)))), None)


def file() -> str:
    """Returns the path of the file, whether it exists or not."""
    package = installed()
    return os.path.join(str(package.locate_file("")) if package else sysconfig.get_path("purelib"), NAME)


def stub_folder() -> str:
    """Returns the path of the folder by which editors and type checkers find `torch`, whether it exists or not."""
    return os.path.join(os.path.dirname(file()), type_stubs.NAME)


def real_torch() -> str | None:
    """Returns the folder of the real torch in this environment; None if it is not installed."""
    spec = PathFinder.find_spec("torch", sys.path)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else None


def enable() -> str:
    """Writes the file. Returns what was done.

    Raises:
        RuntimeError: If the real torch is installed, or tensorgrad is not.
        OSError: If the folder cannot be written to.
    """
    torch, package = real_torch(), installed()
    if torch is not None:
        raise RuntimeError(
            f"the real torch is installed, in {torch}: uninstall it first, or run single programs by "
            "`python -m tensorgrad.run program.py`"
        )
    if package is None:
        here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        raise RuntimeError(
            f"tensorgrad is not installed in this environment, only imported from {here}: programs elsewhere would not "
            f"find it. Install it first: `pip install {here}`"
        )
    path = file()
    _write(path, LINE)
    with contextlib.suppress(FileExistsError):  # stubs that another package brought stay
        type_stubs.write(stub_folder())
    _list(package, [NAME, *_stub_files()])
    return f"enabled: `import torch` is tensorgrad in every program of this environment ({path})"


def disable() -> str:
    """Removes the file. Returns what was done.

    Raises:
        OSError: If it cannot be removed.
    """
    path, package = file(), installed()
    type_stubs.remove(stub_folder())
    if not os.path.exists(path):
        return f"nothing to do: it was not enabled ({path} does not exist)"
    os.unlink(path)
    if package is not None:
        _list(package, [])
    return f"disabled: {path} is removed"


def status() -> str:
    """Returns whether the file is there, and what `import torch` means in a new process of this environment."""
    path = file()
    given = {k: v for k, v in processes.environment().items() if k not in ("PYTHONPATH", "TENSORGRAD_COMPAT")}
    asked = subprocess.run(
        processes.python("-c", _ASK), capture_output=True, text=True, env=given, cwd=os.path.dirname(path)
    )
    hooked, folder = (*asked.stdout.splitlines(), "", "")[:2]
    found = "tensorgrad" if hooked == "True" else "the real torch"
    meaning = f"{found}, in {folder}" if folder else "nothing"
    if not os.path.exists(path):
        return f"not enabled: `import torch` is {meaning} ({path})"
    if hooked != "True":
        return f"enabled, but without effect, as no program finds tensorgrad: `import torch` is {meaning} ({path})"
    return f"enabled: `import torch` is {meaning} ({path})"


def _stub_files() -> list[str]:
    """The stubs that are ours, by their paths in the folder of packages."""
    folder = stub_folder()
    if not type_stubs.is_ours(folder):
        return []
    files = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    return sorted(os.path.relpath(file, os.path.dirname(folder)).replace(os.sep, "/") for file in files)


def _list(package: Distribution, files: list[str]) -> None:
    """Makes these the files of ours that `pip uninstall` removes, beside the package's own."""
    record = package.read_text("RECORD")
    if record is None:  # a package of the system's: its manager keeps a list of its own
        return
    lines = [line for line in record.splitlines() if not line.startswith((f"{NAME},", f"{type_stubs.NAME}/"))]
    own = next((line.partition(",")[0] for line in lines if ".dist-info/RECORD," in line), None)
    if own is None:
        return
    _write(os.path.join(str(package.locate_file("")), own), "\n".join([*lines, *(f"{file},," for file in files), ""]))


def _write(path: str, text: str) -> None:
    """Writes a file that is never seen half written."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            # mkstemp's files are for one user only. By its descriptor, as the name may stand for another file by now.
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
