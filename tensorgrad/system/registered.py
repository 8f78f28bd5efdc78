"""Functions of upper layers that lower ones call. The upper one puts them here, since imports only go down."""

from __future__ import annotations

from collections.abc import Callable

COMPILE_MODULE: list[Callable] = []  # behind `nn.Module.compile` (compat/names/compiler.py)
