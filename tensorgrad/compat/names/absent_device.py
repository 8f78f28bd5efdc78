"""What `torch.mps` and `torch.xpu` offer: the functions of a device type that is not supported.

Programs check for these devices and seed them without using them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# name: (its parameters, what it returns, its docstring)
_FUNCTIONS = {
    "is_available": ("", False, "Returns False: this device is not supported."),
    "device_count": ("", 0, "Returns 0: this device is not supported."),
    "manual_seed": ("seed", None, "Accepted for compatibility: there is nothing to seed."),
    "seed": ("", None, "Accepted for compatibility: there is nothing to seed."),
    "empty_cache": ("", None, "Accepted for compatibility: there is no memory to release."),
    "synchronize": ("", None, "Accepted for compatibility: there is nothing to wait for."),
}


def functions(device: str) -> dict[str, Callable[..., Any]]:
    """The functions of the module `torch.<device>`, by name.

    >>> from tensorgrad.absent_device import functions
    >>> functions("mps")["device_count"]()
    0
    """
    return {name: _function(device, name, *row) for name, row in _FUNCTIONS.items()}


def _function(device: str, name: str, parameter: str, result: Any, doc: str) -> Callable[..., Any]:
    def with_parameter(seed: int) -> Any:
        return result

    def plain() -> Any:
        return result

    function = with_parameter if parameter else plain
    example = f">>> torch.{device}.{name}({'0' if parameter else ''})\n"
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"tensorgrad.{device}"
    function.__doc__ = f"{doc}\n\n    {example}" + ("" if result is None else f"    {result}\n")
    return function
