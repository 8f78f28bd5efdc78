"""What `weights_only=False` means: Python's own unpickler, which imports and calls whatever the file names.

PyTorch's names mean what they mean here, so that whole modules saved by PyTorch programs can be opened.
"""

from __future__ import annotations

import functools
import pickle
from typing import Any

from tensorgrad.serialization.names import pytorch_thing
from tensorgrad.serialization.tables import REBUILD, STORAGE_TYPES
from tensorgrad.serialization.unpickler import NAMES


@functools.cache
def trusting(pickle_module: Any = pickle) -> type:
    """The unpickler of a module like `pickle`, whose `torch.*` names are then looked up in tensorgrad."""

    class Trusting(pickle_module.Unpickler):
        def __init__(self, file, persistent, **options):
            super().__init__(file, **options)
            self.persistent = persistent

        def persistent_load(self, pid):
            """The storage that a reference means; PyTorch's oldest files also refer to classes with their source."""
            if isinstance(pid, tuple) and pid and pid[0] == "module":
                return pid[1]
            return self.persistent(pid)

        def find_class(self, module: str, name: str):
            """What a name means. Raises: AttributeError or ImportError for names that do not exist here either."""
            full = f"{module}.{name}"
            for table in (STORAGE_TYPES, REBUILD, NAMES):
                if full in table:
                    return table[full]
            if module != "torch" and not module.startswith("torch."):
                return super().find_class(module, name)
            return pytorch_thing(module.split(".")[1:], name)

    return Trusting
