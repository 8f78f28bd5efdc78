"""What `torch.mps` and `torch.xpu` offer: the functions of a device type that is not supported.

Programs check for these devices and seed them without using them. Whatever needs the device raises what PyTorch raises
where it was built without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SEEDED = "Accepted for compatibility: there is nothing to seed."
_NO_MEMORY = "Returns 0: there is no memory."

# name: (its parameters, what it returns, its docstring)
_FUNCTIONS = {
    "is_available": ("", False, "Returns False: this device is not supported."),
    "device_count": ("", 0, "Returns 0: this device is not supported."),
    "manual_seed": ("seed", None, _SEEDED),
}
_OF_XPU = {
    "seed": ("", None, _SEEDED),
    "seed_all": ("", None, _SEEDED),
    "manual_seed_all": ("seed", None, _SEEDED),
    "empty_cache": ("", None, "Accepted for compatibility: there is no memory to release."),
    "is_bf16_supported": ("", False, "Returns False: this device is not supported."),
    "is_initialized": ("", False, "Returns False: this device is not supported."),
    "memory_allocated": ("", 0, _NO_MEMORY),
    "max_memory_allocated": ("", 0, _NO_MEMORY),
    "memory_reserved": ("", 0, _NO_MEMORY),
    "max_memory_reserved": ("", 0, _NO_MEMORY),
}
# name: the function of PyTorch's core that its error names
_MPS_NEEDED = {
    "current_allocated_memory": "getCurrentAllocatedMemory",
    "driver_allocated_memory": "getDriverAllocatedMemory",
    "empty_cache": "emptyCache",
    "get_rng_state": "getDefaultGenerator",
    "recommended_max_memory": "getRecommendedMaxMemory",
    "seed": "getDefaultGenerator",
    "set_rng_state": "getDefaultGenerator",
    "synchronize": "deviceSynchronize",
}
_XPU_NEEDED = [
    "can_device_access_peer", "current_device", "current_stream", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "init", "initial_seed", "mem_get_info", "set_device", "set_rng_state",
    "set_stream", "synchronize",
]  # fmt: skip


def functions(device: str) -> dict[str, Callable[..., Any]]:
    """The functions of the module `torch.<device>`, by name.

    >>> from tensorgrad.absent_device import functions
    >>> functions("mps")["device_count"](), functions("xpu")["memory_allocated"]()
    (0, 0)
    >>> functions("mps")["current_allocated_memory"]()
    Traceback (most recent call last):
        ...
    RuntimeError: Cannot execute getCurrentAllocatedMemory() without MPS backend.
    """
    rows = _FUNCTIONS if device == "mps" else {**_FUNCTIONS, **_OF_XPU}
    made = {name: _function(device, name, *row) for name, row in rows.items()}
    if device == "mps":
        for name, inner in _MPS_NEEDED.items():
            made[name] = _refusing(device, name, RuntimeError(f"Cannot execute {inner}() without MPS backend."))
    else:
        for name in _XPU_NEEDED:
            made[name] = _refusing(device, name, AssertionError("Torch not compiled with XPU enabled"))
    return made


def _named(function: Callable[..., Any], device: str, name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"tensorgrad.{device}"
    return function


def _refusing(device: str, name: str, error: Exception) -> Callable[..., Any]:
    def refuse(*args: Any, **options: Any) -> Any:
        raise type(error)(*error.args)

    example = f">>> torch.{device}.{name}()\n    Traceback (most recent call last):\n        ...\n"
    raised = f"{type(error).__name__}: {error}"
    refuse.__doc__ = f"Raises {type(error).__name__}: this device is not supported.\n\n    {example}    {raised}\n"
    return _named(refuse, device, name)


def _function(device: str, name: str, parameter: str, result: Any, doc: str) -> Callable[..., Any]:
    def with_parameter(seed: int) -> Any:
        return result

    def plain(*args: Any, **options: Any) -> Any:
        return result

    function = with_parameter if parameter else plain
    example = f">>> torch.{device}.{name}({'0' if parameter else ''})\n"
    function.__doc__ = f"{doc}\n\n    {example}" + ("" if result is None else f"    {result}\n")
    return _named(function, device, name)
