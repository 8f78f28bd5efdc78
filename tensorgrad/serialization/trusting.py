"""The implementation of `weights_only=False`: Python's own unpickler, which imports and calls whatever the file names.

PyTorch's names refer to tensorgrad, so that whole modules saved by PyTorch programs can be loaded.
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
    """Returns the unpickler of a module like `pickle`, modified to look up `torch.*` names in tensorgrad."""

    class Trusting(pickle_module.Unpickler):
        def __init__(self, file, persistent, **options):
            super().__init__(file, **options)
            self.persistent = persistent

        def persistent_load(self, pid):
            """Returns the storage of a reference; PyTorch's oldest files also refer to classes with their source."""
            if isinstance(pid, tuple) and pid and pid[0] == "module":
                return pid[1]
            return self.persistent(pid)

        def find_class(self, module: str, name: str):
            """Returns the object for a name. Raises: AttributeError or ImportError if it does not exist here either."""
            full = f"{module}.{name}"
            for table in (STORAGE_TYPES, REBUILD, NAMES):
                if full in table:
                    return table[full]
            if module != "torch" and not module.startswith("torch."):
                return super().find_class(module, name)
            return pytorch_thing(module.split(".")[1:], name)

    return Trusting
