"""Names that PyTorch has in one module and that are defined in another: they are found when they are used.

PyTorch has some names below those that they build on: `nn.parameter.UninitializedParameter` is a subclass of
`nn.parameter.Parameter`, `random.get_rng_state` returns a tensor. The module that has such a name needs nothing of the
other; it only says where the name is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from tensorgrad.system.lazy_modules import loaded, whole
from tensorgrad.system.missing_names import no_attribute


def elsewhere(module: str, places: dict[str, str]) -> None:
    """Gives a module names of others: name -> the module that defines it.

    >>> torch.nn.parameter.UninitializedParameter.__module__.removeprefix("tensorgrad.")
    'nn.uninitialized'
    """
    own = loaded(sys.modules[module])

    def __getattr__(name: str) -> Any:
        if name in places:
            return getattr(import_module(places[name]), name)
        raise no_attribute(module, name)

    def __dir__() -> list[str]:
        return sorted({*own, *places})

    own["__getattr__"], own["__dir__"] = __getattr__, __dir__
    whole(module)
