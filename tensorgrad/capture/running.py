"""What is on while compiled functions run: in this thread, and in the settings that change what ops do."""

from __future__ import annotations

import os
from collections.abc import Callable

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


# What is set in this thread and this process, and changes what ops do: expressions, and what they refer to.
MODES = (
    "GRAD.enabled", "GRAD.inference", "SETTINGS.threads", "SETTINGS.deterministic", "SETTINGS.warn_only",
    "SETTINGS.fill_memory", "SETTINGS.matmul_precision", "default_dtype()", "DEFAULT_DEVICE.device",
    "LOCAL.saved_hooks",
)  # fmt: skip
NAMES_OF_MODES = {
    "GRAD": GRAD, "SETTINGS": SETTINGS, "default_dtype": dtypes.get_default_dtype, "DEFAULT_DEVICE": DEFAULT_DEVICE,
    "LOCAL": LOCAL,
}  # fmt: skip
modes: Callable[[], tuple] = function_of(
    f"def modes():\n    return ({', '.join(MODES)})", NAMES_OF_MODES, {"__name__": "tensorgrad.plan"}, "modes"
)
