"""Classes and functions that a program trusts, so that files may refer to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_safe: list = []


def add_safe_globals(safe_globals: list) -> None:
    """Allows `load` to call these classes and functions when a file names them.

    Args:
        safe_globals: The objects, or pairs (object, the full name that files use for it).

    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    _safe.extend(item for item in safe_globals if item not in _safe)


def get_safe_globals() -> list:
    """Returns the classes and functions passed to `add_safe_globals`.

    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    return list(_safe)


def clear_safe_globals() -> None:
    """Removes all added classes and functions; only the built-in table remains.

    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.clear_safe_globals()
    >>> torch.serialization.get_safe_globals()
    []
    """
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list) -> Iterator[None]:
    """A context manager that calls `add_safe_globals` temporarily.

    Args:
        safe_globals: classes and functions, or pairs of one and the name that files call it.

    >>> with torch.serialization.safe_globals([set]):
    ...     torch.serialization.get_safe_globals()
    [<class 'set'>]
    """
    before = list(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before
