"""Range checks of the settings of optimizers."""

from __future__ import annotations

from typing import Any

from tensorgrad.tensor import Tensor


def check(name: str, value: Any, valid: bool) -> None:
    """Raises ValueError, with PyTorch's message, unless `valid`."""
    if not valid:
        raise ValueError(f"Invalid {name}: {value}")


def check_lr(lr: Any, nan: bool = False) -> None:
    """Raises ValueError if the learning rate is negative, has several elements, or (unless `nan`) is NaN."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check("learning rate", lr, not lr < 0.0 if nan else bool(lr >= 0.0))


def check_betas(betas: Any) -> None:
    """Raises ValueError if a decay rate is outside [0, 1)."""
    for i, beta in enumerate(betas[:2]):
        check(f"beta parameter at index {i}", beta, bool(0.0 <= beta < 1.0))


def check_settings(lr: Any, betas: Any, eps: Any, weight_decay: Any) -> None:
    """Raises ValueError unless the settings that Adam shares with its relatives are in range."""
    check_lr(lr)
    check("epsilon value", eps, eps >= 0.0)
    check_betas(betas)
    check("weight_decay value", weight_decay, bool(weight_decay >= 0.0))
