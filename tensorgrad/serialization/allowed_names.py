"""Classes and functions that a program trusts, so that a file may name them besides data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_safe: list = []


def add_safe_globals(safe_globals: list) -> None:
    """Trusts classes and functions that `load` may then call when a file names them.

    Args:
        safe_globals: the objects, or pairs (object, the full name by which files call it).

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    _safe.extend(item for item in safe_globals if item not in _safe)


def get_safe_globals() -> list:
    """The classes and functions that `add_safe_globals` was given.

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.get_safe_globals()
    [<class 'set'>]
    >>> torch.serialization.clear_safe_globals()
    """
    return list(_safe)


def clear_safe_globals() -> None:
    """Trusts nothing but the built-in table again.

    >>> import tensorgrad as torch
    >>> torch.serialization.add_safe_globals([set])
    >>> torch.serialization.clear_safe_globals()
    >>> torch.serialization.get_safe_globals()
    []
    """
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list) -> Iterator[None]:
    """`add_safe_globals` for the duration of a `with` block.

    >>> import tensorgrad as torch
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
