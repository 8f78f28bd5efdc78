"""The keyword arguments with which a layer makes its parameters."""

from __future__ import annotations

from typing import Any

_NAMES = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The ones of ``device``, ``dtype`` and ``memory_format`` among a layer's keyword arguments, checked.

    Args:
        kwargs: what the layer's ``__init__`` got. An argument of its own that is called ``dtype``, say, would hide
            this one: then it comes in the dictionary ``factory_kwargs``.

    Raises:
        TypeError: something else is there, or one of the three comes twice.

    Example::

        >>> import tensorgrad as torch
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
