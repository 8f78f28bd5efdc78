"""What is on while compiled functions run: in this thread, and in the settings that change what ops do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from tensorgrad import dtypes
from tensorgrad.dispatch.codegen import function_of
from tensorgrad.kernels.compiled.runtime.identities import Comparisons, usable
from tensorgrad.ops.create import DEFAULT_DEVICE
from tensorgrad.rows.switches import GRAD, LOCAL
from tensorgrad.settings import SETTINGS
from tensorgrad.system.per_thread import PerThread


class PlanError(AssertionError):
    """What `TENSORGRAD_COMPILE=check` raises where a plan and its program differ."""


class _Running(PerThread):
    """What is on in this thread."""

    recording = False  # is a region being watched or traced? Those inside it are part of it
    inside: tuple = (None, None)  # the call of a module in a compiled wrapper, and the region that stands in for it
    stance = "default"  # `torch.compiler.set_stance`
    check = os.environ.get("TENSORGRAD_COMPILE", "") == "check"  # do program and plan both run, and are compared?


RUNNING = _Running()


# What changes what ops do, and is set in this thread: what holds it, and names. And what is set in this process: the
# dictionaries that hold it, and names.
OF_THREAD = ((GRAD, "enabled"), (GRAD, "inference"), (DEFAULT_DEVICE, "device"), (LOCAL, "saved_hooks"))
OF_PROCESS = (
    (vars(SETTINGS), ("threads", "deterministic", "warn_only", "fill_memory", "matmul_precision")),
    (vars(dtypes.DEFAULT), ("floating",)),
)
_THREAD = ", ".join(f"thread{i}.{name}" for i, (_, name) in enumerate(OF_THREAD))
_PROCESS = ", ".join(f"process{i}[{n!r}]" for i, (_, names) in enumerate(OF_PROCESS) for n in names)
modes: Callable[[], tuple] = function_of(
    f"def modes():\n    return ({_THREAD}, {_PROCESS})",
    {f"thread{i}": held for i, (held, _) in enumerate(OF_THREAD)}
    | {f"process{i}": held for i, (held, _) in enumerate(OF_PROCESS)},
    {"__name__": "tensorgrad.plan"},
    "modes",
)


class ModesOfThread(threading.local):
    """Whether the modes of the calling thread are those of the thread that made this.

    A thread holds its modes in dictionaries of its own, so each thread writes its own list of comparisons for machine
    code: `same` is that, once `learned` has compared them in Python. (A thread that goes on in the place of another
    takes over its modes, but not its lists: this is no `PerThread`.)
    """

    def __init__(self, wanted: tuple) -> None:
        self.wanted = wanted
        self.same: Callable[[], bool] = _unknown

    def learned(self) -> bool:
        """Compares in Python, and has machine code do so from now on."""
        found = modes()[: len(OF_THREAD)]
        if found != self.wanted:
            return False
        comparisons = Comparisons()
        for (held, name), value in zip(OF_THREAD, found, strict=True):
            setattr(held, name, value)  # in the thread's own dictionary, where the class may have had it
            if not usable() or not comparisons.item(vars(held), name, value, _ABSENT):
                return True
        self.same = comparisons.function() or _unknown
        return True


_ABSENT = object()


def _unknown() -> bool:
    return False


def modes_of_thread() -> ModesOfThread:
    """What is set in this thread."""
    return ModesOfThread(modes()[: len(OF_THREAD)])


def modes_of_process() -> list[tuple[Any, None, tuple, tuple, str]]:
    """What is set in this process, as `state_check` compares dictionaries."""
    return [(held, None, names, tuple([held[n] for n in names]), "the settings") for held, names in OF_PROCESS]
