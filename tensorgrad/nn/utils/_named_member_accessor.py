"""Puts tensors into a module under their names, as `torch.func.functional_call` does; tensordict uses it."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor

__all__: list[str] = []

_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Tensor | None, allow_missing: bool = False) -> Any:
    """Puts a tensor in the place of a parameter, buffer or attribute; returns what was there.

    Args:
        module: the module itself that has it.
        name: its name there, without dots.
        tensor: the tensor, or None; what a call returned where there was nothing takes the name away again.
        allow_missing: whether there may be nothing yet.

    Raises:
        TypeError: If the module or the tensor is none.
        KeyError: If the name has dots.
        AttributeError: If there is nothing, unless it may be missing.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not None and not isinstance(tensor, Tensor) and tensor is not _MISSING:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name or not name:
        raise KeyError(f"tensor name must be a plain name, got {name!r}")
    for own in (module._parameters, module._buffers):
        if name in own:
            before: Any = own[name]
            if tensor is _MISSING:
                del own[name]
            else:
                own[name] = tensor  # type: ignore[assignment]
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before
