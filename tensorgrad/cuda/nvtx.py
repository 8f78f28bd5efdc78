"""`torch.cuda.nvtx`: named ranges, shown by NVIDIA's profilers. No effect if CuPy has no NVTX."""

from __future__ import annotations

import contextlib
from typing import Any

from tensorgrad.cuda.devices import module_or_none

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_depth = 0


def _nvtx() -> Any:
    """CuPy's NVTX functions, or None."""
    cupy = module_or_none()
    found = getattr(getattr(cupy, "cuda", None), "nvtx", None)
    return found if getattr(found, "available", False) else None


def range_push(msg: str) -> int:
    """Begins a nested range; returns the number of enclosing ranges.

    >>> torch.cuda.nvtx.range_push("step"), torch.cuda.nvtx.range_pop()
    (0, 0)
    """
    global _depth
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.RangePush(msg)
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """Ends the innermost range; returns the number of ranges that are still open.

    >>> torch.cuda.nvtx.range_push("step"), torch.cuda.nvtx.range_pop()
    (0, 0)
    """
    global _depth
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.RangePop()
    _depth = max(_depth - 1, 0)
    return _depth


def range_start(msg: str) -> int:
    """Begins a range that any thread may end; returns its id.

    >>> torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("loading"))
    """
    nvtx = _nvtx()
    return 0 if nvtx is None else int(nvtx.RangeStart(msg, None))  # None: without a color


def range_end(range_id: int) -> None:
    """Ends a range by its id.

    >>> torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("loading"))
    """
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.RangeEnd(range_id)


def mark(msg: str) -> None:
    """Marks a point in time.

    >>> torch.cuda.nvtx.mark("epoch")
    """
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.Mark(msg)


@contextlib.contextmanager
def range(msg: str, *args, **kwargs):
    """A context manager for a range; further arguments are inserted into the name by `str.format`.

    >>> with torch.cuda.nvtx.range("step {}", 3):
    ...     x = torch.ones(2)
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
