"""Huge pages of Linux, which NumPy asks for in large arrays.

The system then provides memory in pieces of 2 MB instead of 4 KB, which takes a third of the time. But in a virtual
machine whose host has taken back what was free, or which has not used all of its memory yet, the host must first
provide each of them, which takes four times as long as small pages: most of these were in use before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

LARGE = 1 << 22  # bytes of an array, from which on NumPy asks for huge pages
SLOW = 0.8e-9  # seconds per byte; small pages take 0.2 to 0.5, huge ones 0.1 or, where the host provides them, 1.5
_ask = getattr(np._core.multiarray, "_set_madvise_hugepage", None) if hasattr(np, "_core") else None


class _State:
    slow = False  # whether huge pages were slow


def took(size: int, seconds: float) -> None:
    """Is told how long it took until the memory of an array was there."""
    if size >= LARGE and seconds > SLOW * size:
        _State.slow = True


@contextmanager
def if_fast() -> Iterator[None]:
    """Makes NumPy ask for huge pages only if they have not been slow before.

    >>> import numpy as np
    >>> from tensorgrad.storage import huge_pages
    >>> with huge_pages.if_fast():
    ...     array = np.zeros(2_000_000)
    """
    if not _State.slow or _ask is None:
        yield
        return
    before = _ask(False)
    try:
        yield
    finally:
        _ask(before)
