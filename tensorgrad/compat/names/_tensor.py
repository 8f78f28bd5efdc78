"""`torch._tensor`: where programs that read PyTorch's files themselves find what rebuilds tensors of subclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad._utils import _set_obj_state
from tensorgrad.tensor import Tensor

__all__ = ["Tensor"]


def _rebuild_from_type_v2(func: Callable[..., Tensor], new_type: type[Tensor], args: tuple, state: Any) -> Tensor:
    """Calls a function that makes a tensor, and gives the result a class and attributes.

    >>> x = torch._tensor._rebuild_from_type_v2(torch.zeros, torch.Tensor, (2,), {"hint": "zeros"})
    >>> x, x.hint
    (tensor([0., 0.]), 'zeros')
    """
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return made
    return _set_obj_state(made, state)
