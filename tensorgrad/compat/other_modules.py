"""Loads modules of other packages that need something done when they are loaded: the module here that `KNOWN` names.

It has a function `execute(loader, module)`, which runs the module by the loader that Python found for it.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any

KNOWN = {"mpi4py.MPI": "late_mpi", "optree": "trees"}


def find_spec(fullname: str, path: Any, hook: Any) -> ModuleSpec | None:
    """What the other finders than `hook` find for one of the `KNOWN` modules."""
    for finder in sys.meta_path:
        spec = None if finder is hook else finder.find_spec(fullname, path, None)
        if spec is not None:
            spec.loader = _Loader(spec.loader, KNOWN[fullname])  # type: ignore[assignment]  # not a subclass of Loader
            return spec
    return None


class _Loader:
    """Loads a module by another loader."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner = inner
        self.name = name

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.inner
        importlib.import_module(f"tensorgrad.compat.{self.name}").execute(self.inner, module)
