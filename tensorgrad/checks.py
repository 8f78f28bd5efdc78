"""`torch._check` and related assertions, as libraries around PyTorch use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.tensor import Tensor


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], Any] | None) -> None:
    """Raises: `error_type` with the text `message()` if `cond` is False, TypeError if it is not a bool."""
    if not isinstance(cond, bool):
        what = "a Tensor. Use torch._check_tensor_all()" if isinstance(cond, Tensor) else str(type(cond))
        raise TypeError(f"cond must be a bool, but got {what}")
    if cond:
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error_type("Expected cond to be True, but got False." if message is None else str(message()))


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: RuntimeError if `cond` is False."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: IndexError if `cond` is False."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: ValueError if `cond` is False."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: TypeError if `cond` is False."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: NotImplementedError if `cond` is False."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: Any = None) -> None:
    """Raises: RuntimeError if `i` is negative or above `max`."""
    _check(bool(i >= 0 and (max is None or i <= max)), message)


def _check_tensor_all(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises: RuntimeError unless all elements of a boolean tensor are true, TypeError for anything else."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond._array.dtype.kind != "b":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check(bool(cond.all()), message)


def _assert_async(self: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raises: RuntimeError if the only element of a tensor is zero."""
    if not bool(self):
        raise RuntimeError(assert_msg)
