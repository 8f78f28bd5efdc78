"""Stand-ins for names that only PyTorch has: libraries import them, and an error says what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["stand_in"]


def stand_in(name: str, advice: str, module: str, shown: str | None = None, base: type = object) -> Any:
    """Returns a class that can be imported and passed to `isinstance`, and raises NotImplementedError when called.

    Args:
        name: the name of the class or function.
        advice: what to do or know instead.
        module: the module that has it.
        shown: how the error calls it, if not by `name`.
        base: the class that PyTorch's is a subclass of.

    >>> from tensorgrad.system.not_included import stand_in
    >>> shrink = stand_in("shrink_group", "start the job again", "tensorgrad.distributed")
    >>> isinstance(3, shrink)
    False
    >>> shrink()
    Traceback (most recent call last):
        ...
    NotImplementedError: shrink_group is not included: start the job again
    """
    message = f"{shown or name} is not included: {advice}"

    def refuse(cls: type, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(message)

    doc = f"""Raises: NotImplementedError. It is not included.

    >>> from {module} import {name}
    >>> {name}()
    Traceback (most recent call last):
        ...
    NotImplementedError: {message}
    """
    return type(name, (base,), {"__new__": refuse, "__module__": module, "__doc__": doc, "_not_included": advice})
