"""`torch.utils._python_dispatch`: classes may have a `__torch_dispatch__`; a mode with one cannot be entered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """PyTorch's context in which a method sees every operator of its C++ core. Here operators are Python.

    Raises:
        NotImplementedError: When it is entered.

    >>> from tensorgrad.utils._python_dispatch import TorchDispatchMode
    >>> with TorchDispatchMode():
    ...     pass
    Traceback (most recent call last):
    NotImplementedError: TorchDispatchMode: operators do not call modes; a torch.overrides.TorchFunctionMode ...
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Would be called in place of an operator. Raises: NotImplementedError if a mode does not define it."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}: operators do not call modes; a torch.overrides.TorchFunctionMode sees the ops "
            "that run"
        )

    def __exit__(self, *exception: Any) -> None:
        pass


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing, which cannot be entered either."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function."""
        return func(*args, **(kwargs or {}))


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Returns whether a value is a tensor made of others (`__tensor_flatten__`), by PyTorch's protocol.

    >>> import tensorgrad as torch
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
    """Returns False: no such mode is ever on."""
    return False


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Returns False: no such mode is ever on."""
    return False


def _get_current_dispatch_mode() -> None:
    """Returns None: no such mode is ever on."""


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    """Returns an empty list: no such mode is ever on."""
    return []


def _len_torch_dispatch_stack() -> int:
    """Returns 0: no such mode is ever on."""
    return 0


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """A context without such modes, of which there are none."""
    yield []


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Returns the result: views and writes are known without it."""
    return out
