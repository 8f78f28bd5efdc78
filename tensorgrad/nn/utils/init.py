"""Creating a module without computing initial values."""

from __future__ import annotations

import inspect
from typing import Any

from tensorgrad.nn.module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Creates a module whose parameters and buffers have arbitrary values: no random values are drawn.

    Args:
        module_cls: the class, whose `__init__` takes a `device` and creates all tensors there.
        others: the arguments of the class.

    Raises:
        RuntimeError: `module_cls` is not a module class, or has no argument `device`.

    >>> torch.nn.utils.skip_init(torch.nn.Linear, 2, 3).weight.shape
    torch.Size([3, 2])
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
