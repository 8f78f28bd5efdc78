"""`torch.cuda`'s utilization and temperature queries. CUDA does not provide these, so each names an alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["clock_rate", "memory_usage", "power_draw", "temperature", "utilization"]


def _refusing(name: str, what: str) -> Callable[..., NoReturn]:
    """Makes the function that would return something."""
    reason = f"torch.cuda.{name}: CUDA does not provide this; use nvidia-smi"

    def refuse(device: Any = None) -> NoReturn:
        raise NotImplementedError(reason)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"""Would return {what}.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.{name}()
    Traceback (most recent call last):
        ...
    NotImplementedError: {reason}
    """
    return refuse


utilization = _refusing("utilization", "for how much of the last second a GPU was busy, in percent")
memory_usage = _refusing("memory_usage", "for how much of the last second memory was accessed, in percent")
temperature = _refusing("temperature", "the temperature of a GPU, in °C")
power_draw = _refusing("power_draw", "the power consumption of a GPU, in mW")
clock_rate = _refusing("clock_rate", "the current clock rate of a GPU, in MHz")
