"""Puts Numba's decorators and types in the place of their placeholders (runtime/language.py).

This comes before any file of kernels is imported, as they take the names from there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tensorgrad.kernels.compiled.runtime import language, target
from tools.kernels import internals


def use(level: str) -> None:
    """Has kernels compiled for a level of processors from now on. A process compiles for one."""
    target.use(level)
    internals.compile_for(level)
    names: dict[str, Any] = {
        "njit": partial(numba.njit, pipeline_class=internals.pipeline()),
        "intrinsic": intrinsic, "ir": ir, "types": types, "to_fixed_tuple": internals.fixed_tuple(),
    }  # fmt: skip
    blocks = ("array_at", "counted", "data_of", "declared", "length_of", "nothing", "truth")
    for name, value in (names | {name: getattr(internals, name) for name in blocks}).items():
        setattr(language, name, value)
