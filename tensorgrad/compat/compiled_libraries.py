"""Libraries compiled for PyTorch's C++ core whose operators are here in Python: what `torch.ops.load_library` finds.

The compiled files are not loaded. They are recognized by the folder and the name that they have in their packages.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

# folder and name of the file -> namespace of torch.ops, and the module of ours and the table in it
KNOWN: dict[str, tuple[str, str, str]] = {
    "torchaudio/lib/_torchaudio": ("_torchaudio", "tensorgrad.compat.torchaudio_operators", "ABOUT"),
    "torchaudio/lib/libtorchaudio": ("torchaudio", "tensorgrad.compat.torchaudio_operators", "OPERATORS"),
    "torchvision/_C": ("torchvision", "tensorgrad.compat.torchvision_operators", "OPERATORS"),
    "torchvision/_C_stable": ("torchvision", "tensorgrad.compat.torchvision_operators", "OPERATORS"),
    "torchvision/image": ("image", "tensorgrad.compat.torchvision_images", "OPERATORS"),
    "torchvision/image_stable": ("image", "tensorgrad.compat.torchvision_images", "OPERATORS"),
}


def operators(path: Any) -> tuple[str, dict[str, Callable[..., Any]]] | None:
    """Returns the namespace and the operators of a compiled library; None if it is not known.

    >>> from tensorgrad.compat.compiled_libraries import operators
    >>> namespace, found = operators("/site-packages/torchvision/_C.so")
    >>> namespace, "nms" in found, operators("/somewhere/else.so")
    ('torchvision', True, None)
    """
    folder, name = os.path.split(os.path.normpath(os.fspath(path)))
    parts = [*folder.split(os.sep), name.partition(".")[0]]
    known = KNOWN.get("/".join(parts[-2:])) or KNOWN.get("/".join(parts[-3:]))
    return None if known is None else (known[0], getattr(importlib.import_module(known[1]), known[2]))
