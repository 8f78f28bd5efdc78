"""The keyword arguments that a layer passes on when it creates its parameters."""

from __future__ import annotations

from typing import Any

_NAMES = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Returns `device`, `dtype` and `memory_format`, as far as given, from a layer's keyword arguments.

    Args:
        kwargs: the keyword arguments of the layer's `__init__`. If the layer has a parameter of the same name, such
            as `dtype`, these arguments can be passed in a dictionary `factory_kwargs`.

    Raises:
        TypeError: there is another argument, or one of the three is given twice.

    >>> torch.nn.factory_kwargs({"dtype": torch.float64})
    {'dtype': torch.float64}
    """
    if kwargs is None:
        return {}
    unexpected = kwargs.keys() - {*_NAMES, "factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in _NAMES:
        if name in kwargs:
            if name in found:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            found[name] = kwargs[name]
    return found
