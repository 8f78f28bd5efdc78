"""Classes that a program declared: to `torch.jit.script`, so that their objects have a type, or as interfaces."""

from __future__ import annotations

import inspect
from typing import Any
from weakref import WeakSet

SCRIPTED: WeakSet[type] = WeakSet()
INTERFACES: WeakSet[type] = WeakSet()


def interface(obj: Any, base: type) -> Any:
    """See `torch.jit.interface`. `base` is the class of modules."""
    if not inspect.isclass(obj):
        raise RuntimeError("interface must be applied to a class")
    if len(obj.__mro__) > 2 and not (issubclass(obj, base) and len(obj.__mro__) == len(base.__mro__) + 1):
        raise RuntimeError(
            "TorchScript interface does not support inheritance yet. "
            "Please directly inherit from 'object' or 'nn.Module'."
        )
    INTERFACES.add(obj)
    made: Any = obj
    made.__torch_script_interface__ = f"__torch__.{obj.__qualname__}"
    return made
