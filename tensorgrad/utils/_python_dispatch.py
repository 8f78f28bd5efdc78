"""`torch.utils._python_dispatch`: modes that are given the operators of PyTorch's registry, as classes are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.library import dispatch_modes
from tensorgrad.rows.switches import LOCAL

__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A context in which a method of yours is called in place of every operator of PyTorch's registry.

    Within `__torch_dispatch__` the mode itself is off, and those of enclosing `with` blocks are still on: call the
    operator to run it, or to pass it on to them. Modes see what the functions that are called are made of
    (`torch.nn.functional.linear` as `aten.t` and `aten.addmm`), and the operators of a backward pass that runs
    meanwhile. What PyTorch's registry does not know is not seen.

    >>> from tensorgrad.utils._python_dispatch import TorchDispatchMode
    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> x, w = torch.ones(2, 3), torch.ones(1, 3)
    >>> with Names():
    ...     y = torch.nn.functional.linear(x, w) + 1
    aten.t.default
    aten.mm.default
    aten.add.Tensor
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called in place of `func(*args, **kwargs)`; returns the result, or `NotImplemented`.

        Args:
            func: the operator, `torch.ops.aten.add.Tensor`.
            types: the classes of the arguments that have a `__torch_dispatch__`.
            args: its positional arguments.
            kwargs: its keyword arguments.

        Raises:
            NotImplementedError: If a mode does not define it.
        """
        raise NotImplementedError

    def __enter__(self) -> Any:
        dispatch_modes.enter(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        dispatch_modes.leave()


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operator."""
        return func(*args, **(kwargs or {}))


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Returns whether a value is a tensor made of others (`__tensor_flatten__`), by PyTorch's protocol.

    >>> from tensorgrad.utils._python_dispatch import is_traceable_wrapper_subclass
    >>> is_traceable_wrapper_subclass(torch.ones(2))
    False
    """
    return is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Returns whether a class is one of tensors made of others."""
    from tensorgrad.tensor import Tensor

    flattens = hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
    return issubclass(t, Tensor) and t is not Tensor and flattens


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Returns whether such a mode is on in this thread."""
    return bool(LOCAL.dispatch_modes)


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Returns whether such a mode is on in this thread: none of them ignores anything."""
    return bool(LOCAL.dispatch_modes)


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    """Returns the innermost mode that is on, or None."""
    return LOCAL.dispatch_modes[-1] if LOCAL.dispatch_modes else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    """Returns the modes that are on, the innermost last."""
    return list(LOCAL.dispatch_modes)


def _len_torch_dispatch_stack() -> int:
    """Returns how many modes are on."""
    return len(LOCAL.dispatch_modes)


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """A context in which no such mode is on: it yields those that were."""
    modes, LOCAL.dispatch_modes = LOCAL.dispatch_modes, ()
    try:
        yield list(modes)
    finally:
        LOCAL.dispatch_modes = modes


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Returns the result: views and writes are known without it."""
    return out
