"""Helpers around training: data loading, removable hooks, gradient checkpointing.

`import tensorgrad` itself needs none of these modules, so each one is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

from tensorgrad.system.lazy_modules import whole

_PARTS = (
    "_pytree", "benchmark", "checkpoint", "collect_env", "data", "deterministic", "dlpack", "flop_counter", "hooks",
    "model_zoo", "module_tracker", "swap", "tensorboard",
    "weak",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    if name == "swap_tensors":
        return import_module(f"{__name__}.swap").swap_tensors
    raise import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PARTS, "swap_tensors"])


whole(__name__)
