"""`torch.__future__`: how `Module.to` and similar methods treat parameters.

In tensorgrad a conversion always keeps the parameter objects and their owners. Both settings are stored and have no
effect.
"""

from __future__ import annotations

_settings = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Accepted for compatibility: conversions always keep the parameters.

    >>> torch.__future__.set_overwrite_module_params_on_conversion(False)
    """
    _settings["overwrite"] = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Returns the value last passed to `set_overwrite_module_params_on_conversion`.

    >>> torch.__future__.get_overwrite_module_params_on_conversion()
    False
    """
    return _settings["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Accepted for compatibility: parameters already remain the same objects without it.

    >>> torch.__future__.set_swap_module_params_on_conversion(False)
    """
    _settings["swap"] = value


def get_swap_module_params_on_conversion() -> bool:
    """Returns the value last passed to `set_swap_module_params_on_conversion`.

    >>> torch.__future__.get_swap_module_params_on_conversion()
    False
    """
    return _settings["swap"]
