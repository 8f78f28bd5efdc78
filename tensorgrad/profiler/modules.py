"""Which module ran when: the part of a recorder that hears of modules. Loaded with the first profile that wants it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tensorgrad.nn.call_hooks import Listener, ignore, listen
from tensorgrad.nn.module import Module
from tensorgrad.profiler.spans import MODULE
from tensorgrad.system.per_thread import PerThread
from tensorgrad.utils.module_tracker import ModuleTracker

if TYPE_CHECKING:
    from tensorgrad.profiler.recorder import Recorder


class _Running(PerThread):
    """The calls of modules that this thread is in: (name, when it began), the innermost last."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []


class ModuleSpans(Listener):
    """Gives a recorder a span for each call of a module, named by the outermost one's class and the path from there."""

    def __init__(self, recorder: Recorder):
        self.recorder, self.names, self.running = recorder, ModuleTracker(), _Running()

    def innermost(self) -> str:
        """The module that this thread is in, or nothing."""
        return self.running.calls[-1][0] if self.running.calls else ""

    def enter(self, module: Module) -> None:
        self.running.calls.append((self.names.name_of(module), time.perf_counter()))

    def leave(self, module: Module, result: Any) -> None:
        name, start = self.running.calls.pop()
        self.recorder.add(f"nn.Module: {name}", MODULE, start, time.perf_counter(), [], module=name)

    def __enter__(self) -> ModuleSpans:
        listen(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        ignore(self)
