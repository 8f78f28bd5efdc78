"""Helpers around training: data loading, removable hooks, gradient checkpointing.

Nothing here is needed by ``import tensorgrad`` itself, so each part is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PARTS = ("checkpoint", "data", "hooks")

if TYPE_CHECKING:
    from tensorgrad.utils import checkpoint, data, hooks
else:  # so that a misspelt name does not pass for one of these

    def __getattr__(name: str) -> Any:
        if name in _PARTS:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PARTS])
