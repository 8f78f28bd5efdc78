"""Makes the names of `ABSENT` (system/absent_names.py), and the modules that only have such names.

The import hook asks for the modules, and adds what a module that exists lacks.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from types import ModuleType
from typing import Any

from tensorgrad.compat import absent_values
from tensorgrad.system.absent_names import ABSENT, FOUND, MADE, NO, NOTHING, REFUSES, SAME, VALUE
from tensorgrad.system.lazy_modules import AFTER, loaded
from tensorgrad.system.missing_names import is_file
from tensorgrad.system.not_included import stand_in

OURS = "tensorgrad"


def names_in(module: str) -> dict[str, str]:
    """Returns the absent names of a module of PyTorch, each with its full name; modules within it are among them.

    >>> from tensorgrad.compat.stand_ins import names_in
    >>> names_in("torch._export.utils")["remove_proxy_from_state_dict"], names_in("torch")["_export"]
    ('torch._export.utils.remove_proxy_from_state_dict', 'torch._export')
    """
    return _index().get(module, {})


@functools.cache
def _index() -> dict[str, dict[str, str]]:
    """Module -> name -> full name, of all names and modules of the table."""
    index: dict[str, dict[str, str]] = {}
    for full in ABSENT:
        while full != "torch":
            module, _, name = full.rpartition(".")
            index.setdefault(module, {})[name] = full
            full = module
    return index


def make(full: str) -> Any:
    """Returns what stands for an absent name or module. Raises: KeyError if it is not in the table.

    >>> from tensorgrad.compat.stand_ins import make, stop
    >>> isinstance(3, make("torch._dynamo.OptimizedModule")), make("torch._dynamo.is_compiling")()
    (False, False)
    >>> make("torch._dynamo.testing.CompileCounter")()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch._dynamo.testing.CompileCounter is not included: ...
    >>> stop()
    """
    if full not in ABSENT and names_in(full):
        ours = OURS + full.removeprefix("torch")
        if ours not in sys.modules:
            sys.modules[ours] = AbsentModule(full)
        return sys.modules[ours]
    kind, _, advice = ABSENT[full]
    module, _, name = full.rpartition(".")
    if kind == VALUE:
        return advice
    if kind == MADE:
        return getattr(absent_values, advice)
    if kind == FOUND:
        return pkgutil.resolve_name(advice)
    if kind == REFUSES:
        return stand_in(name, advice, OURS + module.removeprefix("torch"), full)
    made = {SAME: _same, NOTHING: _nothing, NO: _no}[kind](full, advice)
    made.__name__ = made.__qualname__ = name
    made.__module__ = OURS + module.removeprefix("torch")
    return made


def _same(full: str, why: str) -> Any:
    def same(fn: Any = None, *args: Any, **options: Any) -> Any:
        return fn if callable(fn) else lambda function: function

    same.__doc__ = f"Returns the function that it is given, or a decorator that does ({full}: {why})."
    return same


def _nothing(full: str, why: str) -> Any:
    def nothing(*args: Any, **options: Any) -> None:
        return None

    nothing.__doc__ = f"Does nothing ({full}: {why})."
    return nothing


def _no(full: str, why: str) -> Any:
    def no(*args: Any, **options: Any) -> bool:
        return False

    no.__doc__ = f"Returns False ({full}: {why})."
    return no


class AbsentModule(ModuleType):
    """A module that has only absent names, which are made when they are used."""

    def __init__(self, full: str) -> None:
        super().__init__(OURS + full.removeprefix("torch"), f"`{full}`: names without a meaning in tensorgrad.")
        self.__dict__.update(_torchs=full, __path__=[], __file__=None)

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__dict__['_torchs']}.{name}"
        if name not in names_in(self.__dict__["_torchs"]):
            raise AttributeError(
                f"module {self.__dict__['_torchs']!r} has no attribute {name!r} (nothing in this module has a meaning "
                "in tensorgrad; run `python -m tensorgrad.coverage` to see what is available)",
                name=name,
            )
        made = self.__dict__[name] = make(full)
        return made

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *names_in(self.__dict__["_torchs"])})


def module(full: str) -> ModuleType | None:
    """Returns an absent module; None if the table has no names in it.

    >>> from tensorgrad.compat.stand_ins import module, stop
    >>> module("torch._dynamo").is_compiling(), module("torch.no_such_module")
    (False, None)
    >>> stop()
    """
    return make(full) if full not in ABSENT and names_in(full) else None


def start(name: str) -> None:
    """Calls `fill` for a module, and from now on for each module that is loaded on first use."""
    if fill not in AFTER:
        AFTER.append(fill)
    fill(name)


_added: list[tuple[dict[str, Any], str]] = []  # (a module's dictionary, name): what `fill` has added


def stop() -> None:
    """Undoes `start`."""
    if fill in AFTER:
        AFTER.remove(fill)
    while _added:
        own, name = _added.pop()
        own.pop(name, None)
    for name in [n for n, module in list(sys.modules.items()) if isinstance(module, AbsentModule)]:
        del sys.modules[name]


def fill(name: str) -> None:
    """Adds their absent names to a module of tensorgrad and the modules in it, as far as they are loaded.

    >>> from tensorgrad.compat.stand_ins import fill, stop
    >>> torch.xpu.is_available()
    False
    >>> fill("tensorgrad.xpu")
    >>> torch.xpu.is_current_stream_capturing()
    False
    >>> stop()
    """
    for full, names in _index().items():
        ours = OURS + full.removeprefix("torch")
        module = sys.modules.get(ours)
        if module is None or isinstance(module, AbsentModule) or not f"{ours}.".startswith(f"{name}."):
            continue
        own = loaded(module)
        for missing in names.keys() - own.keys():
            if not is_file(ours, missing):
                own[missing] = make(names[missing])
                _added.append((own, missing))
