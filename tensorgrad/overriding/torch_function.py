"""Modes and classes with a `__torch_function__` are asked about the function that was called, not about its ops.

Functions of ops ask by themselves (dispatch/slow_path.py). Composites and methods ask from the moment on when there is
anyone to ask: a class that overrides functions was defined, or a mode was entered. Until then they have no trace of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from types import FrameType, FunctionType
from typing import Any

from tensorgrad.overriding import caller_arguments, function_classes, function_modes
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.tensor import ON_OVERRIDING_CLASS, Tensor

# Arguments of these classes override nothing. (Of tensors, those of `PLAIN`.)
NUMBERS_AND_NAMES = frozenset((bool, bytes, complex, float, int, str, type(None)))

# `a += b` and the like.
_IN_PLACE = frozenset(
    f"__i{name}__"
    for name in ("add", "and", "floordiv", "lshift", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor")
)

# Properties that subclasses see, as `Tensor.grad.__get__`: those that are tensors.
_SEEN = ("H", "T", "_base", "data", "grad", "imag", "mH", "mT", "real")

# Methods that subclasses do not see: they read what a tensor is, or are not functions of tensors.
_UNSEEN = frozenset((
    "as_subclass", "const_data_ptr", "data_ptr", "dense_dim", "dim", "dim_order", "element_size", "get_device",
    "is_coalesced", "is_complex", "is_conj", "is_contiguous", "is_distributed", "is_floating_point", "is_inference",
    "is_neg", "is_nonzero", "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed", "item", "module_load",
    "ndimension", "nelement", "new", "new_empty_strided", "numel", "numpy", "record_stream", "register_hook",
    "register_post_accumulate_grad_hook", "reinforce", "render", "retain_grad", "share_memory_", "size", "sparse_dim",
    "storage", "storage_offset", "storage_type", "stride", "tolist", "untyped_storage",
))  # fmt: skip


def ask(func: Callable, args: tuple, kwargs: dict[str, Any], as_written: bool = False) -> Any:
    """Returns what the modes, and then the classes of the arguments, make of a call of a function.

    Returns `NotImplemented` if there are none: then the function runs. `as_written`: the arguments are those that the
    caller wrote, not all that the function has.

    Raises:
        TypeError: If all decline.
    """
    declined = False
    types = () if LOCAL.inside_override else tuple(_overriding((*args, *kwargs.values())))
    if (LOCAL.function_modes or types) and not as_written:
        args, kwargs = function_classes.as_called(func, args, kwargs)
    if LOCAL.function_modes:
        result = function_modes.call(func, args, kwargs)
        if result is not NotImplemented:
            return result
        declined = True
    if types:
        return function_classes.call(func, types, args, kwargs)
    if DISPATCH and not hasattr(func, "op"):  # ops ask for it themselves
        result = DISPATCH[0](func, args, kwargs)
        if result is not NotImplemented:
            return result
    if declined:
        raise function_modes.refused(func)
    return NotImplemented


def _overriding(values: tuple) -> Iterator[type]:
    """The classes of values that override functions; with them all subclasses of Tensor that are not plain."""
    types = dict.fromkeys(function_classes.classes_of(values))
    if any(not issubclass(cls, Tensor) or cls._sees_functions for cls in types):
        return iter(types)
    return iter(())


def see_methods(cls: type) -> None:
    """Lets a subclass of Tensor see its methods as they are called. Other classes do not pay."""
    for name, method in list(vars(Tensor).items()):
        seen = isinstance(method, FunctionType) and name not in _UNSEEN and _is_public(name)
        if seen and getattr(cls, name) is method:  # it has no such method of its own
            setattr(cls, name, asking(method))
    for name in _SEEN:
        if getattr(cls, name) is vars(Tensor)[name]:
            setattr(cls, name, asking_property(vars(Tensor)[name]))


def _is_public(name: str) -> bool:
    return name[0] != "_" or name in ("__getitem__", "__setitem__") or name in _IN_PLACE


@cache
def asking(method: Any) -> Any:
    """Returns a method that asks before it runs."""
    in_python = caller_arguments.is_in_python(method)

    @wraps(method)
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        given: tuple[tuple, dict[str, Any]] = (self, *args), kwargs
        asked = ask(
            method, *(caller_arguments.completed_method(method, *given) if in_python else given), as_written=True
        )
        return method(self, *args, **kwargs) if asked is NotImplemented else asked

    return call


@cache
def asking_property(seen: property) -> property:
    """Returns a property that asks before it is read."""

    def read(self: Tensor) -> Any:
        asked = ask(seen.__get__, (self,), {}, as_written=True)
        return seen.__get__(self) if asked is NotImplemented else asked

    return property(read, seen.fset, seen.fdel, seen.__doc__)


def composite_asks(depth: int) -> bool:
    """Returns whether an op runs within a composite that a user called: then that one asks, once the op has failed.

    Args:
        depth: how many frames lie between this function and the op's caller.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        if "FUNCTION" in frame.f_code.co_freevars:  # a guard (dispatch/guard.py)
            return True
        if not frame.f_globals.get("__name__", "").startswith("tensorgrad"):
            return False
        frame = frame.f_back
    return False


ON_OVERRIDING_CLASS.append(see_methods)
