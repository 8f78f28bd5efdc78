"""Functions of PyTorch's package that are not included: they raise an error when called."""

from __future__ import annotations

from typing import Any

MISSING = {
    "shrink_group": "a group cannot lose members; start the job again",
    "split_group": "use new_group",
    "record_comm": "recording of communication is not included",
}
__all__ = [*MISSING]


def _refusal(name: str) -> Any:
    """A function that raises RuntimeError."""
    message = f"distributed.{name} is not included: {MISSING[name]}"

    def function(*args: Any, **options: Any) -> Any:
        raise RuntimeError(message)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Raises: RuntimeError. It is not included.

    >>> import tensorgrad.distributed as dist
    >>> dist.{name}()
    Traceback (most recent call last):
        ...
    RuntimeError: {message}
    """
    return function


for _name in MISSING:
    globals()[_name] = _refusal(_name)
