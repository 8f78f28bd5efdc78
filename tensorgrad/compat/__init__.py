"""Makes `import torch` load tensorgrad: after `install()`, for `torch` and all `torch.*`, in this process only.

    import tensorgrad.compat
    tensorgrad.compat.install()
    import torch                             # this is tensorgrad
    from torch.nn.modules.linear import Linear

`python -m tensorgrad.run script.py` does this for a whole program.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import tensorgrad

COVERAGE = "`python -m tensorgrad.coverage`"  # reports what is available
_OURS = "tensorgrad"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves imports of `torch` and `torch.*` to tensorgrad's modules, the same objects under both names."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Returns a spec for `torch` names; None for all others."""
        if not _is_torchs(fullname):
            return None
        module = _module(fullname)
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))
        spec.loader_state = module
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns the module itself. (The import system overwrites its metadata, which is restored afterwards.)"""
        module = spec.loader_state
        spec.loader_state = (getattr(module, "__spec__", None), getattr(module, "__loader__", None))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Registers loaded submodules; names that shadow them, such as `autograd.gradcheck`, stay as they are."""
        for name in [n for n in sys.modules if n.startswith(f"{module.__name__}.")]:
            sys.modules.setdefault("torch" + name.removeprefix(_OURS), sys.modules[name])
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__, module.__loader__ = spec.loader_state


def _is_torchs(name: str) -> bool:
    """Whether a module name belongs to PyTorch. Its wheel also contains the package `functorch`."""
    return name in ("torch", "functorch") or name.startswith(("torch.", "functorch."))


def _module(fullname: str) -> ModuleType:
    """Returns tensorgrad's module for a `torch` name. Raises: ModuleNotFoundError if there is none."""
    if fullname == "torch.ops":  # in PyTorch this is something else than our package `ops`
        return tensorgrad.ops
    ours = f"{_OURS}.{fullname}" if fullname.startswith("functorch") else _OURS + fullname.removeprefix("torch")
    if ours in sys.modules:
        return sys.modules[ours]
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(_OURS):
            raise  # one of its dependencies is missing
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tensorgrad, which replaces torch here, does not have it (run {COVERAGE} "
            "to see what is available)",
            name=fullname,
        ) from None


_finder = _Finder()
_before: dict[str, ModuleType] = {}


def install() -> None:
    """Makes `torch` refer to tensorgrad from now on. Existing references to PyTorch are not affected.

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
    """Undoes `install`: `torch` refers to what it did before.

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
    """Returns whether `torch` currently refers to tensorgrad.

    >>> from tensorgrad import compat
    >>> compat.install()
    >>> compat.installed()
    True
    >>> compat.uninstall()
    """
    return _finder in sys.meta_path


def _in_children(wanted: bool) -> None:
    """Makes processes started by `multiprocessing` do the same before they load the main program."""
    from multiprocessing import set_forkserver_preload, spawn

    original = getattr(spawn.get_command_line, "original", spawn.get_command_line)

    def get_command_line(**options: Any) -> list[str]:
        command = original(**options)
        at = command.index("-c") + 1 if "-c" in command else 0
        if at:  # not in frozen programs
            command[at] = f"import tensorgrad.compat.child; {command[at]}"
        return command

    get_command_line.original = original  # type: ignore[attr-defined]
    spawn.get_command_line = get_command_line if wanted else original
    set_forkserver_preload(["tensorgrad.compat.child"] if wanted else ["__main__"])


def explain(error: BaseException) -> str | None:
    """Returns a hint for an error caused by a name that tensorgrad lacks; None for any other error.

    >>> from tensorgrad import compat
    >>> compat.explain(ImportError("No module named 'torch.hub'", name="torch.hub"))
    'torch is tensorgrad here; run `python -m tensorgrad.coverage` to see what is available'
    """
    named = isinstance(error, ImportError | AttributeError) and (getattr(error, "name", None) or "")
    text = str(error)
    if isinstance(error, ImportError) and str(named).startswith((_OURS, "torch")):
        return f"torch is tensorgrad here; run {COVERAGE} to see what is available"
    if isinstance(error, AttributeError) and ("'tensorgrad" in text or "torch." in text):
        return f"torch is tensorgrad here; run {COVERAGE} to see what is available"
    return None
