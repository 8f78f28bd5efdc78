"""`import torch` without PyTorch: after `install()`, `torch` and every `torch.*` are tensorgrad, in this process only.

    import tensorgrad.compat
    tensorgrad.compat.install()
    import torch                             # this is tensorgrad
    from torch.nn.modules.linear import Linear

`python -m tensorgrad.run script.py` does that for a whole program.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import tensorgrad

COVERAGE = "`python -m tensorgrad.coverage`"  # says what there is and what not
_OURS = "tensorgrad"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of `torch` and `torch.*` with the modules of tensorgrad, which stay one and the same object."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """A specification for `torch` names; None leaves the rest to others."""
        if not _is_torchs(fullname):
            return None
        module = _module(fullname)
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))
        spec.loader_state = module
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself. (The import system is about to write its own notes on it: they are put back after.)"""
        module = spec.loader_state
        spec.loader_state = (getattr(module, "__spec__", None), getattr(module, "__loader__", None))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already, and so have modules below it: names that hide them, as `autograd.gradcheck`, stay."""
        for name in [n for n in sys.modules if n.startswith(f"{module.__name__}.")]:
            sys.modules.setdefault("torch" + name.removeprefix(_OURS), sys.modules[name])
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__, module.__loader__ = spec.loader_state


def _is_torchs(name: str) -> bool:
    """Whether a module of this name is PyTorch's. Its wheel also brings the package `functorch`."""
    return name in ("torch", "functorch") or name.startswith(("torch.", "functorch."))


def _module(fullname: str) -> ModuleType:
    """tensorgrad's module of a `torch` name. Raises: ModuleNotFoundError if there is none."""
    if fullname == "torch.ops":  # a name of PyTorch's for something else than our package
        return tensorgrad.ops
    ours = f"{_OURS}.{fullname}" if fullname.startswith("functorch") else _OURS + fullname.removeprefix("torch")
    if ours in sys.modules:
        return sys.modules[ours]
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(_OURS):
            raise  # something that it needs is missing
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tensorgrad, which stands for torch here, does not have it ({COVERAGE} "
            "prints what there is)",
            name=fullname,
        ) from None


_finder = _Finder()
_before: dict[str, ModuleType] = {}


def install() -> None:
    """Makes `torch` mean tensorgrad from now on. PyTorch, if it was imported already, stays with who has it.

    >>> import tensorgrad.compat
    >>> tensorgrad.compat.install()
    >>> import torch
    >>> torch is tensorgrad
    True
    >>> tensorgrad.compat.uninstall()
    """
    if _finder in sys.meta_path:
        return
    for name in [n for n in sys.modules if _is_torchs(n)]:
        _before[name] = sys.modules.pop(name)
    sys.meta_path.insert(0, _finder)
    sys.modules["torch"] = tensorgrad
    _in_children(True)


def uninstall() -> None:
    """Takes `install` back: `torch` means again what it meant before.

    >>> from tensorgrad import compat
    >>> compat.install()
    >>> compat.uninstall()
    >>> compat.installed()
    False
    """
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    _in_children(False)
    for name in [n for n in sys.modules if _is_torchs(n)]:
        del sys.modules[name]
    sys.modules.update(_before)
    _before.clear()


def installed() -> bool:
    """Whether `torch` means tensorgrad now.

    >>> from tensorgrad import compat
    >>> compat.install()
    >>> compat.installed()
    True
    >>> compat.uninstall()
    """
    return _finder in sys.meta_path


def _in_children(wanted: bool) -> None:
    """Lets the processes that `multiprocessing` starts from here do the same, before they read the main program."""
    from multiprocessing import set_forkserver_preload, spawn

    original = getattr(spawn.get_command_line, "original", spawn.get_command_line)

    def get_command_line(**options: Any) -> list[str]:
        command = original(**options)
        at = command.index("-c") + 1 if "-c" in command else 0
        if at:  # absent in frozen programs
            command[at] = f"import tensorgrad.compat.child; {command[at]}"
        return command

    get_command_line.original = original  # type: ignore[attr-defined]
    spawn.get_command_line = get_command_line if wanted else original
    set_forkserver_preload(["tensorgrad.compat.child"] if wanted else ["__main__"])


def explain(error: BaseException) -> str | None:
    """A line to add to an error that comes from a name that tensorgrad does not have; None for any other error.

    >>> from tensorgrad import compat
    >>> compat.explain(ImportError("No module named 'torch.hub'", name="torch.hub"))
    'torch is tensorgrad here; `python -m tensorgrad.coverage` prints what it has and what not'
    """
    named = isinstance(error, ImportError | AttributeError) and (getattr(error, "name", None) or "")
    text = str(error)
    if isinstance(error, ImportError) and str(named).startswith((_OURS, "torch")):
        return f"torch is tensorgrad here; {COVERAGE} prints what it has and what not"
    if isinstance(error, AttributeError) and ("'tensorgrad" in text or "torch." in text):
        return f"torch is tensorgrad here; {COVERAGE} prints what it has and what not"
    return None
