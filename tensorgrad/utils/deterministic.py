"""`torch.utils.deterministic`: what else `torch.use_deterministic_algorithms(True)` does.

`fill_uninitialized_memory`, an attribute of this module, says whether the functions that make uninitialised memory
(`torch.empty`, `resize_`, ...) then fill it with nan, or with the largest integer, so that a program that reads it
gives the same every time.
"""

from __future__ import annotations

import sys
import types

from tensorgrad.settings import _Settings

fill_uninitialized_memory: bool


class _Module(types.ModuleType):
    """The module, whose switch is kept where the functions look."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether uninitialised memory is filled while the algorithms are to be deterministic."""
        return _Settings.fill_memory

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory: expected a bool, but got {type(mode).__name__}")
        _Settings.fill_memory = mode


sys.modules[__name__].__class__ = _Module
