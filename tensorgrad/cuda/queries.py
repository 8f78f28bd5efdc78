"""`torch.cuda`'s utilization and temperature queries. CUDA does not provide these, so each names an alternative."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["clock_rate", "memory_usage", "power_draw", "temperature", "utilization"]


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"torch.cuda.{name}: CUDA does not provide this; use nvidia-smi")


def utilization(device=None) -> int:
    """Would return for how much of the last second a GPU was busy, in percent.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.utilization()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.utilization: CUDA does not provide this; use nvidia-smi
    """
    _refuse("utilization")


def memory_usage(device=None) -> int:
    """Would return for how much of the last second memory was accessed, in percent.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.memory_usage()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.memory_usage: CUDA does not provide this; use nvidia-smi
    """
    _refuse("memory_usage")


def temperature(device=None) -> int:
    """Would return the temperature of a GPU, in °C.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.temperature()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.temperature: CUDA does not provide this; use nvidia-smi
    """
    _refuse("temperature")


def power_draw(device=None) -> int:
    """Would return the power consumption of a GPU, in mW.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.power_draw()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.power_draw: CUDA does not provide this; use nvidia-smi
    """
    _refuse("power_draw")


def clock_rate(device=None) -> int:
    """Would return the current clock rate of a GPU, in MHz.

    Raises:
        NotImplementedError: Always.

    >>> torch.cuda.clock_rate()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.cuda.clock_rate: CUDA does not provide this; use nvidia-smi
    """
    _refuse("clock_rate")
