"""Names of PyTorch's inner modules that libraries import and that mean nothing here, with the library that needs each.

The import hook makes the modules. Their names are classes and functions that can be imported, passed to `isinstance`
and `issubclass`, and raise an error when called.
"""

from __future__ import annotations

from types import ModuleType

from tensorgrad.system.not_included import stand_in

_COMPILED = "torch.compile returns the function or module itself"
_FULLY_SHARD = "use torch.distributed.fsdp.fully_shard"

# module -> name -> (the library that imports it, what to do or know instead)
ABSENT: dict[str, dict[str, tuple[str, str]]] = {
    "torch._dynamo": {"OptimizedModule": ("Lightning, accelerate", _COMPILED)},
    "torch._dynamo.eval_frame": {"OptimizedModule": ("accelerate", _COMPILED)},
    "torch.distributed.fsdp.sharded_grad_scaler": {"ShardedGradScaler": ("Lightning, accelerate", _FULLY_SHARD)},
}


def module(fullname: str) -> ModuleType | None:
    """Returns a module of the names of one module of `ABSENT`; None if it is not in the table.

    >>> from tensorgrad.compat import absent_names
    >>> dynamo = absent_names.module("torch._dynamo")
    >>> isinstance(3, dynamo.OptimizedModule), absent_names.module("torch.no_such_module")
    (False, None)
    >>> dynamo.OptimizedModule()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch._dynamo.OptimizedModule is not included: ...
    """
    names = ABSENT.get(fullname)
    if names is None:
        return None
    made = ModuleType(
        "tensorgrad" + fullname.removeprefix("torch"), f"`{fullname}`: names that raise an error when used."
    )
    if any(other.startswith(f"{fullname}.") for other in ABSENT):
        made.__path__ = []
    for name, (_, advice) in names.items():
        setattr(made, name, stand_in(name, advice, made.__name__, f"{fullname}.{name}"))
    return made
