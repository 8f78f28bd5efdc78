"""`torch.utils.deterministic`: a further setting for `torch.use_deterministic_algorithms(True)`.

The module attribute `fill_uninitialized_memory` determines whether functions that return uninitialized memory
(`torch.empty`, `resize_`, ...) fill it with NaN, or with the largest integer, in deterministic mode. A program that
reads such memory then gives the same result every time.
"""

from __future__ import annotations

import sys
import types

from tensorgrad.settings import SETTINGS

fill_uninitialized_memory: bool


class _Module(types.ModuleType):
    """The module's class: makes the setting a property, stored where the functions read it."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether uninitialized memory is filled in deterministic mode."""
        return SETTINGS.fill_memory

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory: expected a bool, but got {type(mode).__name__}")
        SETTINGS.fill_memory = mode


sys.modules[__name__].__class__ = _Module
