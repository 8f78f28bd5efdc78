"""Modules that load some of their names when they are first used, and yet are whole for who looks through them.

Programs go through `torch.optim.__dict__` to find all optimizers. So the dictionary of such a module, when it is asked
for, has all names, and using one of them does not change its size.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def loaded(module: ModuleType) -> dict[str, Any]:
    """The dictionary of a module as it is now, without loading more."""
    return vars(ModuleType)["__dict__"].__get__(module)


class _Whole(ModuleType):
    def __dir__(self) -> list[str]:
        return loaded(self)["__dir__"]()

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        own = loaded(self)
        if not own.get("_is_whole"):
            own["_is_whole"] = True  # first, for what is loaded may look here
            for name in own["__dir__"]():
                try:
                    own.setdefault(name, getattr(self, name))
                except (AttributeError, ModuleNotFoundError):  # it needs a package that is not installed
                    pass
                except ImportError:  # somebody looks while one of the files is being loaded
                    own["_is_whole"] = False
        return own


def whole(name: str) -> None:
    """Makes the module of that name load everything when its dictionary is looked at. It has a `__dir__`.

    (Not for `torch` and `torch.nn.functional`, whose functions are looked up in every call: Python finds names faster
    in plain modules.)

    >>> import tensorgrad as torch
    >>> "Adagrad" in vars(torch.optim)
    True
    """
    sys.modules[name].__class__ = _Whole
