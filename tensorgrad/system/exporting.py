"""Whether a program is being exported or traced: libraries ask, and then do nothing that depends on tensors' values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorgrad.system.per_thread import PerThread


class _Current(PerThread):
    ways: tuple[str, ...] = ()  # in which a program is being exported in this thread


_CURRENT = _Current()


@contextmanager
def exporting(*ways: str) -> Iterator[None]:
    """A context in which a program runs to be exported.

    Args:
        ways: "export" as by `torch.export`, "trace" as by `torch.jit.trace`, "onnx" by `torch.onnx.export`.

    >>> from tensorgrad.system.exporting import exporting, is_exporting
    >>> with exporting("onnx", "export"):
    ...     print(is_exporting("export"), is_exporting("trace"))
    True False
    """
    before = _CURRENT.ways
    _CURRENT.ways = (*before, *ways)
    try:
        yield
    finally:
        _CURRENT.ways = before


def is_exporting(way: str) -> bool:
    """Returns whether a program is being exported in this way, in this thread.

    >>> from tensorgrad.system.exporting import is_exporting
    >>> is_exporting("trace")
    False
    """
    return way in _CURRENT.ways
