"""`torch.backends.cudnn`: settings that programs make in passing."""

from __future__ import annotations

import contextlib

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True
benchmark_limit = 10


def is_available() -> bool:
    """Whether convolutions run on cuDNN: they do not.

    >>> import tensorgrad as torch
    >>> torch.backends.cudnn.is_available()
    False
    """
    return False


def version() -> int | None:
    """The version of cuDNN: none.

    >>> import tensorgrad as torch
    >>> print(torch.backends.cudnn.version())
    None
    """
    return None


def is_acceptable(tensor) -> bool:
    """Whether cuDNN could work on a tensor: no.

    >>> import tensorgrad as torch
    >>> torch.backends.cudnn.is_acceptable(torch.ones(1))
    False
    """
    return False


@contextlib.contextmanager
def flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True):
    """A `with` block with other settings.

    >>> import tensorgrad as torch
    >>> with torch.backends.cudnn.flags(benchmark=True):
    ...     torch.backends.cudnn.benchmark
    True
    """
    wanted = {
        "enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
        "deterministic": deterministic, "allow_tf32": allow_tf32,
    }  # fmt: skip
    before = {name: globals()[name] for name in wanted}
    globals().update(wanted)
    try:
        yield
    finally:
        globals().update(before)
