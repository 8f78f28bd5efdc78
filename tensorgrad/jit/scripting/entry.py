"""`torch.jit.script`: what it does with each kind of thing."""

from __future__ import annotations

import inspect
from typing import Any

from tensorgrad.jit.declared import SCRIPTED
from tensorgrad.jit.errors import ProgramError
from tensorgrad.jit.objects import Scripted
from tensorgrad.jit.scripting.errors import NotWritable
from tensorgrad.jit.scripting.modules import ScriptFunction, script_module
from tensorgrad.nn import Module


def script(obj: Any) -> Any:
    """See `torch.jit.script`."""
    if inspect.isclass(obj):
        SCRIPTED.add(obj)
        return obj
    if isinstance(obj, Scripted | ScriptFunction):
        return obj
    try:
        if isinstance(obj, Module):
            return script_module(obj)
        return ScriptFunction(obj) if callable(obj) else obj
    except (NotWritable, ProgramError, RecursionError) as error:
        if hasattr(obj, "__dict__"):
            object.__setattr__(obj, "_unwritable", str(error)) if isinstance(obj, Module) else setattr(
                obj, "_unwritable", str(error)
            )
        return obj
