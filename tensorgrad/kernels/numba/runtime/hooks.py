"""What `table.install` gives to this folder, which imports nothing of the folders above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

compile_here: Callable[..., Any]  # (kernel, folder): compiles in this process, where no other can be started

# For the kernels of a family, what calls them with arrays that do not lie in rows: (kernel, arguments) -> result.
layouts: dict[str, Callable] = {}
