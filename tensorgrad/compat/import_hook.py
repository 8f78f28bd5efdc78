"""The import hook that answers `torch`, `torch.*` and `functorch` with tensorgrad's modules.

This file imports nothing of the package: processes that may never use torch load it alone when they start (see
`startup/sitecustomize.py`), and tensorgrad itself only at the first `import torch`.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

COVERAGE = "`python -m tensorgrad.coverage`"  # reports what is available
OURS = "tensorgrad"
_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))  # the folder that tensorgrad is in


class ImportHook:
    """Resolves imports of `torch` and `torch.*` to tensorgrad's modules, the same objects under both names."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Returns a spec for `torch` names, and for tensorgrad wherever it is; None for all others."""
        if fullname == OURS:  # in a process started by a program: its folder may not be on the path there
            return PathFinder.find_spec(fullname, [_ROOT])
        if fullname == "mpi4py.MPI" or (fullname == "optree" and OURS in sys.modules):
            from tensorgrad.compat import other_modules

            return other_modules.find_spec(fullname, path, self)
        if not is_torchs(fullname):
            return None
        module = _module(fullname)
        is_package = hasattr(module, "__path__")
        spec = ModuleSpec(fullname, self, is_package=is_package)  # type: ignore[arg-type]  # not a subclass of Loader
        spec.loader_state = module
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module itself. (The import system overwrites its metadata, which is restored afterwards.)"""
        module = spec.loader_state
        spec.loader_state = (getattr(module, "__spec__", None), getattr(module, "__loader__", None))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Registers loaded submodules; names that shadow them, such as `autograd.gradcheck`, stay as they are."""
        from tensorgrad.compat import stand_ins, trees

        stand_ins.start(module.__name__)
        inside = f"{module.__name__}."
        for name in [n for n in list(sys.modules) if n.startswith(inside)]:
            sys.modules.setdefault("torch" + name.removeprefix(OURS), sys.modules[name])
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__, module.__loader__ = spec.loader_state
        if module.__name__ == OURS:
            module.__name__ = "torch"  # as programs that patch torch's functions by their names expect
            name_members("torch")
            trees.tell_loaded()

    def get_code(self, fullname: str) -> Any:
        """Returns the code of a module, which `-m torch.distributed.run` runs as the main program."""
        spec = _module(fullname).__spec__
        return spec.loader.get_code(spec.name)  # type: ignore[union-attr]

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """Returns torch's metadata, so that `importlib.metadata.version("torch")` is the version that is followed.

        Only for questions about this process's own path: about another environment the hook knows nothing.
        """
        from importlib.metadata import PathDistribution
        from pathlib import Path

        name = getattr(context, "name", None)
        folders = getattr(context, "path", sys.path)
        if (name is None or name.lower() == "torch") and not set(sys.path).isdisjoint(folders):
            return [PathDistribution(Path(_HERE, "distribution"))]
        return []


def name_members(package: str) -> None:
    """Says that `Tensor` and the functions of `torch.nn.init` are in `package`.

    By that, libraries which import no framework know a tensor (eagerpy), and modes over functions the initializers.

    >>> from tensorgrad.compat.import_hook import name_members
    >>> from tensorgrad.nn.init import zeros_
    >>> before = zeros_.__module__.removesuffix(".nn.init")
    >>> name_members("torch")
    >>> zeros_.__module__, torch.Tensor.__module__
    ('torch.nn.init', 'torch')
    >>> name_members(before)
    """
    from tensorgrad.nn import init
    from tensorgrad.tensor import Tensor

    Tensor.__module__ = package if package == "torch" else "tensorgrad.tensor"
    for function in vars(init).values():
        if callable(function) and getattr(function, "__module__", "").endswith(".nn.init"):
            function.__module__ = f"{package}.nn.init"


def is_torchs(name: str) -> bool:
    """Returns whether a module name belongs to PyTorch. Its wheel also contains the package `functorch`.

    >>> from tensorgrad.compat.import_hook import is_torchs
    >>> is_torchs("torch.nn"), is_torchs("torchvision")
    (True, False)
    """
    return name in ("torch", "functorch") or name.startswith(("torch.", "functorch."))


def _module(fullname: str) -> ModuleType:
    """Returns tensorgrad's module for a `torch` name. Raises: ModuleNotFoundError if there is none."""
    if fullname == "torch.ops":  # in PyTorch this is something else than our package `ops`
        return importlib.import_module(OURS).ops
    ours = f"{OURS}.{fullname}" if fullname.startswith("functorch") else OURS + fullname.removeprefix("torch")
    if ours in sys.modules:
        return sys.modules[ours]
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(OURS):
            raise  # one of its dependencies is missing
        from tensorgrad.compat import stand_ins

        absent = stand_ins.module(fullname)
        if absent is not None:
            return absent
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: tensorgrad, which replaces torch here, does not have it (run {COVERAGE} "
            "to see what is available)",
            name=fullname,
        ) from None


hook = ImportHook()


def start() -> None:
    """Makes `torch` refer to tensorgrad in a process that has imported neither."""
    if hook not in sys.meta_path:
        sys.meta_path.insert(0, hook)
