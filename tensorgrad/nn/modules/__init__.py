"""`torch.nn.modules`, the package of PyTorch's layers. Programs import them from its files:

    from torch.nn.modules.linear import Linear
    from torch.nn.modules.batchnorm import _BatchNorm

Each of those files is an alias module here that looks its names up in `tensorgrad.nn`.
"""

from __future__ import annotations

import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any as _Any

from tensorgrad import nn as _nn
from tensorgrad.system.lazy_modules import whole as _whole

_FILES = (
    "activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout", "flatten",
    "fold", "instancenorm", "lazy", "linear", "loss", "module", "normalization", "padding", "pixelshuffle", "pooling",
    "rnn", "sparse", "transformer", "upsampling", "utils",
)  # fmt: skip
# Where to look for names that are not in torch.nn itself.
_SEARCHED = (
    "module", "module_hooks", "module_state", "activation", "adaptive", "attention", "backward_hook", "batchnorm",
    "container", "conv", "dropout", "lazy", "linear", "loss", "normalization", "padding", "parameter", "pooling", "rnn",
    "rnn_cell", "transformer",
)  # fmt: skip
# Names that PyTorch has there -> (file, name) here.
_OTHERS: dict[str, tuple[str, _Any]] = {
    "NonDynamicallyQuantizableLinear": ("attention", "NonDynamicallyQuantizableLinear"),
    "_BatchNorm": ("batchnorm", "_BatchNorm"), "_NormBase": ("batchnorm", "_NormBase"),
    "_ConvNd": ("conv", "_ConvNd"), "_EXTRA_STATE_KEY_SUFFIX": ("module_state", "EXTRA_STATE"),
    "_Loss": ("loss", "_Loss"),
    "_WeightedLoss": ("loss", "_WeightedLoss"), "_single": ("utils", 1), "_pair": ("utils", 2),
    "_triple": ("utils", 3), "_quadruple": ("utils", 4),
}  # fmt: skip


def _times(n: int) -> _Any:
    return lambda value: tuple(value) if hasattr(value, "__iter__") else (value,) * n


def _find(name: str) -> _Any:
    import importlib

    if hasattr(_nn, name):
        return getattr(_nn, name)
    if name in _OTHERS:
        file, other = _OTHERS[name]
        return (
            _times(other)
            if isinstance(other, int)
            else getattr(importlib.import_module(f"tensorgrad.nn.{file}"), other)
        )
    if name.startswith("_global_"):  # the hooks common to all modules
        from tensorgrad.nn import module_hooks

        for kind in ("parameter", "buffer", "module"):
            if name == f"_global_{kind}_registration_hooks":
                return getattr(module_hooks, f"on_{kind}")
        return getattr(module_hooks.GLOBAL_HOOKS, name.removeprefix("_global"))
    for file in _SEARCHED:
        found = getattr(importlib.import_module(f"tensorgrad.nn.{file}"), name, None)
        if found is not None:
            return found
    raise importlib.import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


class _AliasModule(_ModuleType):
    """A file of PyTorch's. The hooks common to all modules, which are variables there, can be set through it."""

    def __setattr__(self, name: str, value: _Any) -> None:
        from tensorgrad.nn.module_hooks import GLOBAL_HOOKS

        if name.startswith("_global_") and hasattr(GLOBAL_HOOKS, name.removeprefix("_global")):
            setattr(GLOBAL_HOOKS, name.removeprefix("_global"), value)
        else:
            super().__setattr__(name, value)


for _file in _FILES:
    _alias = _AliasModule(f"{__name__}.{_file}", f"`torch.nn.modules.{_file}`: see `tensorgrad.nn`.")
    _alias.__dict__["__getattr__"] = _find
    _sys.modules[_alias.__name__] = globals()[_file] = _alias


def __getattr__(name: str) -> _Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_nn)})


_whole(__name__)
