"""`torch.__future__`: how `Module.to` and the like are to treat parameters, as PyTorch may do it one day.

Here parameters always stay the same objects, and so do those who hold them: both settings are kept and change nothing.
"""

from __future__ import annotations

_settings = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Accepted: conversions keep the parameters.

    >>> import tensorgrad as torch
    >>> torch.__future__.set_overwrite_module_params_on_conversion(False)
    """
    _settings["overwrite"] = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` was last told.

    >>> import tensorgrad as torch
    >>> torch.__future__.get_overwrite_module_params_on_conversion()
    False
    """
    return _settings["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Accepted: the effect, that parameters are still the same objects, is there without it.

    >>> import tensorgrad as torch
    >>> torch.__future__.set_swap_module_params_on_conversion(False)
    """
    _settings["swap"] = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` was last told.

    >>> import tensorgrad as torch
    >>> torch.__future__.get_swap_module_params_on_conversion()
    False
    """
    return _settings["swap"]
