"""`torch.mps`: a kind of device that does not exist here. Programs ask whether it does, and seed it in passing."""

from __future__ import annotations


def is_available() -> bool:
    """Whether tensors can be put there: no.

    >>> import tensorgrad as torch
    >>> torch.mps.is_available()
    False
    """
    return False


def device_count() -> int:
    """How many such devices there are: none.

    >>> import tensorgrad as torch
    >>> torch.mps.device_count()
    0
    """
    return 0


def manual_seed(seed: int) -> None:
    """Accepted: there is nothing to seed.

    >>> import tensorgrad as torch
    >>> torch.mps.manual_seed(0)
    """


def seed() -> None:
    """Accepted: there is nothing to seed.

    >>> import tensorgrad as torch
    >>> torch.mps.seed()
    """


def empty_cache() -> None:
    """Accepted: there is no memory to give back.

    >>> import tensorgrad as torch
    >>> torch.mps.empty_cache()
    """


def synchronize() -> None:
    """Accepted: there is nothing to wait for.

    >>> import tensorgrad as torch
    >>> torch.mps.synchronize()
    """
