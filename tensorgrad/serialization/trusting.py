"""What `weights_only=False` means: Python's own unpickler, which imports and calls whatever the file names.

PyTorch's names mean what they mean here, so that whole modules saved by PyTorch programs can be opened.
"""

from __future__ import annotations

import importlib
import pickle

from tensorgrad.serialization.tables import REBUILD, STORAGE_TYPES
from tensorgrad.serialization.unpickler import NAMES


class Trusting(pickle.Unpickler):
    """A pickle whose `torch.*` names are looked up in tensorgrad."""

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
        return _ours(module.split(".")[1:], name)


def _ours(path: list[str], name: str):
    """The thing of a name in `torch.a.b`; `torch.nn.modules.linear` and its like are found in `tensorgrad.nn`."""
    candidates = [path] + ([["nn"]] if path[:2] == ["nn", "modules"] else [])
    for parts in candidates:
        try:
            found = importlib.import_module(".".join(["tensorgrad", *parts]))
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"the file asks for torch.{'.'.join([*path, name])}, which tensorgrad does not have")
