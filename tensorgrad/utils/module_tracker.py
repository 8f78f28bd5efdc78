"""`torch.utils.module_tracker`: tracks which modules are running."""

from __future__ import annotations

import weakref
from typing import Any

from tensorgrad.nn.call_hooks import Listener, ignore, listen
from tensorgrad.nn.module import Module
from tensorgrad.system.per_thread import PerThread

__all__ = ["ModuleTracker"]


class _Stack(PerThread):
    """The names of the modules running in this thread, innermost last."""

    def __init__(self) -> None:
        self.names: list[str] = []


class ModuleTracker(Listener):
    """Tracks the names of the modules whose `forward` is running, inside a `with` block.

    A module is named by the class of the outermost module that was called and the path from there. `parents` is the
    set of these names and "Global", which is always included. Each thread is tracked separately.

    >>> from tensorgrad.utils.module_tracker import ModuleTracker
    >>> layer = torch.nn.Linear(2, 2)
    >>> model = torch.nn.Sequential(layer, torch.nn.ReLU())
    >>> with ModuleTracker() as tracker:
    ...     handle = layer.register_forward_hook(lambda *_: print(sorted(tracker.parents)))
    ...     y = model(torch.ones(1, 2))
    ['Global', 'Sequential', 'Sequential.0']
    """

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._stack = _Stack()

    @property
    def stack(self) -> tuple[str, ...]:
        """The names of the running modules, outermost first."""
        return tuple(self._stack.names)

    @property
    def parents(self) -> set[str]:
        """The names of the running modules, and "Global"."""
        return {"Global", *self._stack.names}

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is running in this thread."""
        from tensorgrad.autograd.engine import RUNS

        return RUNS.current[0] != 0

    def name_of(self, module: Module) -> str:
        """Returns the module's name. A module that is not part of one named earlier becomes the root of a new tree."""
        name = self._names.get(module)
        if name is None:
            root = type(module).__name__
            for path, part in module.named_modules():
                self._names.setdefault(part, f"{root}.{path}" if path else root)
            name = self._names[module]
        return name

    def enter(self, module: Module) -> None:
        self._stack.names.append(self.name_of(module))

    def leave(self, module: Module, result: Any) -> None:
        self._stack.names.pop()

    def __enter__(self) -> ModuleTracker:
        listen(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        ignore(self)
