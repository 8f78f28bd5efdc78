"""The clock by which waits are measured. Whoever waits takes it as an argument, so that a test can move the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["SYSTEM", "Clock"]


class Clock(NamedTuple):
    """How to read the time in seconds, and how to let some of it pass.

    >>> from tensorgrad.system.clock import SYSTEM
    >>> before = SYSTEM.now()
    >>> SYSTEM.sleep(0.001)
    >>> SYSTEM.now() > before
    True
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Any] = time.sleep


SYSTEM = Clock()
