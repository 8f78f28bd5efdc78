"""`torch.backends.mkldnn`: Intel's oneDNN, which is not used here."""

from __future__ import annotations

import contextlib

enabled = False


def is_available() -> bool:
    """Returns whether oneDNN is used: always False.

    >>> torch.backends.mkldnn.is_available()
    False
    """
    return False


@contextlib.contextmanager
def flags(enabled=False, **others):
    """A context manager without effect, accepted for compatibility.

    >>> with torch.backends.mkldnn.flags(enabled=False):
    ...     total = torch.ones(2).sum()
    """
    yield
