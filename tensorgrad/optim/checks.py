"""Whether settings are within their range, which optimizers ask when they are made."""

from __future__ import annotations

from typing import Any

from tensorgrad.tensor import Tensor


def check(name: str, value: Any, fine: bool) -> None:
    """Raises ValueError, in PyTorch's words, unless ``fine``."""
    if not fine:
        raise ValueError(f"Invalid {name}: {value}")


def check_lr(lr: Any, nan: bool = False) -> None:
    """Raises ValueError for a learning rate that is negative (or, unless ``nan``, not a number), or several numbers."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check("learning rate", lr, not lr < 0.0 if nan else bool(lr >= 0.0))


def check_betas(betas: Any) -> None:
    """Raises ValueError for a decay rate outside [0, 1)."""
    for i, beta in enumerate(betas[:2]):
        check(f"beta parameter at index {i}", beta, bool(0.0 <= beta < 1.0))
