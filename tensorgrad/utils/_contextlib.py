"""The base class of PyTorch's context managers that decorate functions, which libraries use for theirs."""

from __future__ import annotations

from tensorgrad.autograd.modes import ModeDecorator

__all__: list[str] = []


class _DecoratorContextManager(ModeDecorator):
    """Lets a context manager decorate functions and generators: each call is made within a clone of it."""


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same for context managers without arguments, which may decorate without parentheses."""

    def __new__(cls, orig_func=None):
        made = object.__new__(cls)
        return made if orig_func is None else made(orig_func)
