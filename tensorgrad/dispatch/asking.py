"""Modes and classes with a `__torch_function__` are asked about the function that was called, not about its ops.

Ops ask by themselves (slow_path.py). Composites and methods that are no ops ask from the moment on when there is
anyone to ask: a class that overrides functions was defined, or a mode was entered. Until then they have no trace of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from itertools import chain
from types import FrameType, FunctionType
from typing import Any

from tensorgrad.dispatch import function_modes, other_classes
from tensorgrad.dispatch.switches import DISPATCH, LOCAL
from tensorgrad.tensor import ON_OVERRIDING_CLASS, PLAIN, Tensor, tensors_in

# Arguments of these classes override nothing. (Of tensors, those of `PLAIN`.)
NUMBERS_AND_NAMES = frozenset((bool, bytes, complex, float, int, str, type(None)))

# Methods that subclasses do not see: they read what a tensor is, or are no functions of tensors.
_UNSEEN = frozenset((
    "as_subclass", "const_data_ptr", "data_ptr", "dense_dim", "dim", "dim_order", "element_size", "get_device",
    "is_coalesced", "is_complex", "is_conj", "is_contiguous", "is_distributed", "is_floating_point", "is_inference",
    "is_neg", "is_nonzero", "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed", "item", "module_load",
    "ndimension", "nelement", "new", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor",
    "new_zeros", "numel", "numpy", "record_stream", "register_hook", "register_post_accumulate_grad_hook", "reinforce",
    "render", "retain_grad", "share_memory_", "size", "sparse_dim", "storage", "storage_offset", "storage_type",
    "stride", "tolist", "untyped_storage",
))  # fmt: skip


def ask(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Returns what the modes, and then the classes of the arguments, make of a call of a function.

    Returns `NotImplemented` if there are none: then the function runs.

    Raises:
        TypeError: If all decline.
    """
    declined = False
    if LOCAL.function_modes:
        result = function_modes.call(func, *other_classes.as_called(func, args, kwargs))
        if result is not NotImplemented:
            return result
        declined = True
    types = () if LOCAL.inside_override else tuple(_overriding((*args, *kwargs.values())))
    if types:
        return other_classes.call(func, types, args, kwargs)
    if DISPATCH:
        result = DISPATCH[0](func, args, kwargs)
        if result is not NotImplemented:
            return result
    if declined:
        raise function_modes.refused(func)
    return NotImplemented


def _overriding(values: tuple) -> Iterator[type]:
    """The classes of values that override functions; with them all subclasses of Tensor that are not plain."""
    tensors = {t.__class__: t for t in tensors_in(values) if t.__class__ not in PLAIN}
    others = {value.__class__: None for value in other_classes.overriding(values)}
    if others or any(cls._sees_functions for cls in tensors):
        return chain(tensors, others)
    return iter(())


def see_methods(cls: type) -> None:
    """Lets a subclass of Tensor see the methods that are no ops, as they are called. Other classes do not pay."""
    for name, method in list(vars(Tensor).items()):
        seen = isinstance(method, FunctionType) and not (hasattr(method, "op") or name in _UNSEEN) and _is_public(name)
        if seen and getattr(cls, name) is method:  # it has no such method of its own
            setattr(cls, name, asking(method))


def _is_public(name: str) -> bool:
    return name[0] != "_" or name in ("__getitem__", "__setitem__")


@cache
def asking(method: Any) -> Any:
    """Returns a method that asks before it runs."""

    @wraps(method)
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = ask(method, (self, *args), kwargs)
        return method(self, *args, **kwargs) if asked is NotImplemented else asked

    return call


def composite_asks(depth: int) -> bool:
    """Returns whether an op runs within a composite that a user called: then that one asks, once the op has failed.

    Args:
        depth: how many frames lie between this function and the op's caller.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        if "FUNCTION" in frame.f_code.co_freevars:  # a guard (guard.py)
            return True
        if not frame.f_globals.get("__name__", "").startswith("tensorgrad"):
            return False
        frame = frame.f_back
    return False


ON_OVERRIDING_CLASS.append(see_methods)
