"""Modules that load some of their names on first use, but still look complete to code that inspects them.

Programs iterate over `torch.optim.__dict__` to find all optimizers. So the dictionary of such a module contains all
names, and using one of them does not change its size. There are two ways:

    whole   for values: all of them are loaded when the dictionary is accessed
    later   for modules: they are in the dictionary from the start, and run when one of their names is accessed

The first slows down every lookup, as Python finds names faster in plain modules. So `torch` and
`torch.nn.functional`, whose functions are looked up in every call, load their values at the start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def loaded(module: ModuleType) -> dict[str, Any]:
    """Returns the current dictionary of a module, without loading more."""
    return vars(ModuleType)["__dict__"].__get__(module)


class _ByName(ModuleType):
    """A module that is pickled by name. Programs that send functions to other processes pickle what those refer to."""

    def __reduce__(self) -> tuple:
        return import_module, (self.__name__,)


class Whole(_ByName):
    """A module that loads all its names when its dictionary is accessed: those that its `__dir__` returns."""

    def __dir__(self) -> list[str]:
        return loaded(self)["__dir__"]()

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        own = loaded(self)
        if not own.get("_is_whole"):
            own["_is_whole"] = True  # set first, since loading may access the dictionary again
            for name in own["__dir__"]():
                try:
                    own.setdefault(name, getattr(self, name))
                except (AttributeError, ModuleNotFoundError):  # needs a package that is not installed
                    pass
                except ImportError:  # accessed while one of the files is still being loaded
                    own["_is_whole"] = False
        return own


def whole(name: str) -> None:
    """Makes the named module load all its names when its dictionary is accessed. It must define `__dir__`.

    >>> "Adagrad" in vars(torch.optim)
    True
    """
    sys.modules[name].__class__ = Whole


class _Later(_ByName):
    """A module that has not run yet. (Module metadata, such as `__name__`, can be read and set without running it.)"""

    def __getattribute__(self, name: str) -> Any:
        if name[:2] != "__" or name in ("__all__", "__dict__", "__doc__"):
            import_module(ModuleType.__getattribute__(self, "__name__"))  # waits if another thread is importing it
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] != "__":
            import_module(self.__name__)
        ModuleType.__setattr__(self, name, value)


class _Loader:
    """The loader of a file, which runs it in the existing module object."""

    def __init__(self, loader: Any, module: ModuleType):
        self._loader, self._module = loader, module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if type(module) is _Later:
            ModuleType.__setattr__(module, "__class__", ModuleType)
        _waiting.pop(module.__name__, None)
        for function in AFTER:
            function(module.__name__)


class _Finder:
    """Finds the modules that have not run yet."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        module = _waiting.get(fullname)
        spec = None if module is None else PathFinder.find_spec(fullname, path, target)
        if module is not None and spec is not None:
            spec.loader = _Loader(spec.loader, module)  # type: ignore[assignment]
        return spec


AFTER: list[Callable[[str], None]] = []  # called with the name of each of these modules after it has run
_waiting: dict[str, ModuleType] = {}
sys.meta_path.insert(0, _Finder)


def later(package: str, names: tuple[str, ...]) -> None:
    """Adds modules to a package's dictionary that run on first use.

    >>> vars(torch)["distributions"].Normal(0.0, 1.0)
    Normal(loc: 0.0, scale: 1.0)
    """
    own = loaded(sys.modules[package])
    for name in names:
        full = f"{package}.{name}"
        if full not in sys.modules:
            own[name] = _waiting[full] = _Later(full)
