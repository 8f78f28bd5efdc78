"""Functions that `table.install` sets here, since this folder imports nothing from the folders above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

compile_here: Callable[..., Any]  # (kernel, folder): compiles in this process, if no other can be started

# Per kernel of a family: the function that calls it with non-contiguous arrays, as (kernel, arguments) -> result.
layouts: dict[str, Callable] = {}

# Per kernel of a family: the seconds that NumPy takes for an element in a process's first calls.
first_calls: dict[str, float] = {}
