"""What is on while compiled functions run: in this thread, and in the settings that change what ops do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tensorgrad import dtypes
from tensorgrad.dispatch.codegen import function_of
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


# What changes what ops do, and is set in this thread: expressions, and what they refer to. And what is set in this
# process: the dictionaries that hold it, and names.
OF_THREAD = ("GRAD.enabled", "GRAD.inference", "DEFAULT_DEVICE.device", "LOCAL.saved_hooks")
NAMES_OF_THREAD = {"GRAD": GRAD, "DEFAULT_DEVICE": DEFAULT_DEVICE, "LOCAL": LOCAL}
OF_PROCESS = (
    (vars(SETTINGS), ("threads", "deterministic", "warn_only", "fill_memory", "matmul_precision")),
    (vars(dtypes.DEFAULT), ("floating",)),
)
_ALL = ", ".join([*OF_THREAD, *(f"process{i}[{n!r}]" for i, (_, names) in enumerate(OF_PROCESS) for n in names)])
modes: Callable[[], tuple] = function_of(
    f"def modes():\n    return ({_ALL})",
    NAMES_OF_THREAD | {f"process{i}": held for i, (held, _) in enumerate(OF_PROCESS)},
    {"__name__": "tensorgrad.plan"},
    "modes",
)


def modes_of_thread() -> dict[str, Any]:
    """What is set in this thread, by its expressions."""
    return dict(zip(OF_THREAD, modes(), strict=False))


def modes_of_process() -> list[tuple[Any, None, tuple, tuple, str]]:
    """What is set in this process, as `state_check` compares dictionaries."""
    return [(held, None, names, tuple([held[n] for n in names]), "the settings") for held, names in OF_PROCESS]
