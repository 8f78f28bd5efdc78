"""Who waits for which operation: written to the store by a wait that is long, and read when it has been too long.

A store may not answer, if its own process is the one that hangs. So it is asked in another thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.distributed.stores.store import Store

__all__ = ["absent", "present"]

PATIENCE = 2.0  # seconds for the store to answer


def _aside(function: Callable[[], Any], seconds: float) -> list[Any]:
    """Runs a function in a thread, and returns its result in a list; an empty list if that takes longer, or fails."""
    result: list[Any] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            result.append(function())

    thread = threading.Thread(target=run, name="tensorgrad-store", daemon=True)
    thread.start()
    thread.join(seconds)
    return list(result)


def present(store: Store, group: str, number: int, rank: int) -> None:
    """Says that a rank waits for the operation of this number."""
    _aside(lambda: store.set(f"waits/{group}/{number}/{rank}", "1"), 0)


def absent(store: Store, group: str, number: int, ranks: Sequence[int]) -> str:
    """Which ranks have not said so, in words that continue a message."""
    found = _aside(lambda: [r for r in ranks if not store.check([f"waits/{group}/{number}/{r}"])], PATIENCE)
    if not found:
        return "; the store does not answer either: its process hangs or has ended"
    if not found[0]:
        return ""
    return f": rank {', '.join(map(str, found[0]))} did not take part"
