"""`torch.cuda.nvtx`: names for spans of time, shown by NVIDIA's profilers. Nothing happens where CuPy has no NVTX."""

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
    """Begins a span of time inside of those that are open; returns how many these are.

    >>> import tensorgrad as torch
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
    """Ends the span of time that was begun last; returns how many are still open.

    >>> import tensorgrad as torch
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
    """Begins a span of time, which any thread may end; returns its number.

    >>> import tensorgrad as torch
    >>> torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("loading"))
    """
    nvtx = _nvtx()
    return 0 if nvtx is None else int(nvtx.RangeStart(msg))


def range_end(range_id: int) -> None:
    """Ends a span of time by its number.

    >>> import tensorgrad as torch
    >>> torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("loading"))
    """
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.RangeEnd(range_id)


def mark(msg: str) -> None:
    """Names a moment.

    >>> import tensorgrad as torch
    >>> torch.cuda.nvtx.mark("epoch")
    """
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx.Mark(msg)


@contextlib.contextmanager
def range(msg: str, *args, **kwargs):
    """A `with` block that is a span of time; further arguments go into the name as `str.format` puts them.

    >>> import tensorgrad as torch
    >>> with torch.cuda.nvtx.range("step {}", 3):
    ...     x = torch.ones(2)
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
