"""Libraries compiled for PyTorch's C++ core whose operators are here in Python: what `torch.ops.load_library` finds.

The compiled files are not loaded. They are recognized by the folder and the name that they have in their packages.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

# folder and name of the file -> namespace of torch.ops, and the module of ours with the table `OPERATORS` for it
KNOWN: dict[str, tuple[str, str]] = {
    "torchvision/_C": ("torchvision", "tensorgrad.compat.torchvision_operators"),
    "torchvision/_C_stable": ("torchvision", "tensorgrad.compat.torchvision_operators"),
    "torchvision/image": ("image", "tensorgrad.compat.torchvision_images"),
    "torchvision/image_stable": ("image", "tensorgrad.compat.torchvision_images"),
}


def operators(path: Any) -> tuple[str, dict[str, Callable[..., Any]]] | None:
    """Returns the namespace and the operators of a compiled library; None if it is not known.

    >>> from tensorgrad.compat.compiled_libraries import operators
    >>> namespace, found = operators("/site-packages/torchvision/_C.so")
    >>> namespace, "nms" in found, operators("/somewhere/else.so")
    ('torchvision', True, None)
    """
    folder, name = os.path.split(os.fspath(path))
    known = KNOWN.get(f"{os.path.basename(folder)}/{name.partition('.')[0]}")
    return None if known is None else (known[0], importlib.import_module(known[1]).OPERATORS)
