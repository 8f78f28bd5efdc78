"""Makes `import torch` mean tensorgrad in every program of a Python environment, by a file in its site-packages.

`python -m tensorgrad.compat enable` writes the file `torch_is_tensorgrad.pth`, which Python reads when it starts, and
stubs for editors and type checkers (type_stubs.py). `disable` removes both, and `status` says whether it is enabled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import tempfile
from importlib.machinery import PathFinder

from tensorgrad.compat import type_stubs

NAME = "torch_is_tensorgrad.pth"


def file() -> str:
    """Returns the path of the file, whether it exists or not."""
    return os.path.join(sysconfig.get_path("purelib"), NAME)


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
        RuntimeError: If the real torch is installed.
        OSError: If the folder cannot be written to.
    """
    torch = real_torch()
    if torch is not None:
        raise RuntimeError(
            f"the real torch is installed, in {torch}: uninstall it first, or run single programs by "
            "`python -m tensorgrad.run program.py`"
        )
    load = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup", "load.py")
    path = file()
    # Python runs lines that begin with `import`. Without tensorgrad, the line does nothing.
    line = f"import os; p = {load!r}; os.path.exists(p) and exec(open(p).read(), {{'__file__': p}})\n"
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            out.write(line)
            # mkstemp's files are for one user only. By its descriptor, as the name may stand for another file by now.
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    with contextlib.suppress(FileExistsError):  # stubs that another package brought stay
        type_stubs.write(stub_folder())
    return f"enabled: `import torch` is tensorgrad in every program of this environment ({path})"


def disable() -> str:
    """Removes the file. Returns what was done.

    Raises:
        OSError: If it cannot be removed.
    """
    path = file()
    type_stubs.remove(stub_folder())
    if not os.path.exists(path):
        return f"nothing to do: it was not enabled ({path} does not exist)"
    os.unlink(path)
    return f"disabled: {path} is removed"


def status() -> str:
    """Returns whether the file is there, and what `import torch` means in this environment."""
    enabled, torch = os.path.exists(file()), real_torch()
    meaning = "tensorgrad" if enabled else f"the real torch, in {torch}" if torch else "nothing"
    return f"{'enabled' if enabled else 'not enabled'}: `import torch` is {meaning} ({file()})"
