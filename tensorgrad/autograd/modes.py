"""Grad mode: whether ops are recorded in the graph. Thread-local, nestable, and usable as decorators."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tensorgrad.rows.switches import GRAD, INFERENCE_MODE, switch
from tensorgrad.storage.stubs import INFERENCE
from tensorgrad.system.per_thread import PerThread

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="ModeDecorator")


class ModeDecorator:
    """Lets a context manager decorate functions and generators: each call (and each resumption) runs in the mode."""

    def clone(self: M) -> M:
        """Returns a mode like this one, for a further `with` block.

        >>> type(torch.no_grad().clone()).__name__
        'no_grad'
        """
        return self.__class__()

    def __enter__(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say what it switches on")

    def __exit__(self, *exception: object) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say what it switches off")

    def __call__(self, function: F) -> F:
        import inspect  # only needed for decorators: keeps the package's import fast

        if inspect.isclass(function):
            warnings.warn(
                f"Decorating classes is deprecated: {type(self).__name__} turns {function.__name__} into a function. "
                "Decorate its methods instead, such as `__init__`.",
                FutureWarning,
                stacklevel=2,
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                with self.clone():
                    running = function(*args, **kwargs)
                value = error = None
                while True:
                    try:
                        with self.clone():
                            item = running.throw(error) if error is not None else running.send(value)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        value, error = (yield item), None
                    except GeneratorExit:
                        with self.clone():
                            running.close()
                        raise
                    except BaseException as thrown:
                        value, error = None, thrown

            return generator  # type: ignore[return-value]  # what it wraps, to type checkers

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(ModeDecorator):
    """A context manager and decorator that disables recording: results do not require grad.

    Args:
        function: of a decorator: what is decorated.

    >>> w = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     (w * 2).requires_grad
    False
    """

    mode = False

    @overload
    def __new__(cls: type[M], function: None = None) -> M: ...
    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]  # it decorates at once
    def __new__(cls, function=None):
        made = object.__new__(cls)
        return made if function is None else made(function)  # allows `@torch.no_grad` without parentheses

    def __enter__(self) -> None:
        self.before, GRAD.enabled = GRAD.enabled, self.mode

    def __exit__(self, *exception: object) -> None:
        GRAD.enabled = self.before


class enable_grad(no_grad):
    """A context manager and decorator that enables recording, also within `no_grad`.

    Args:
        function: of a decorator: what is decorated.

    >>> x = torch.ones(1, requires_grad=True)
    >>> with torch.no_grad():
    ...     with torch.enable_grad():
    ...         (2 * x).requires_grad
    True
    """

    mode = True


class Switch(ModeDecorator):
    """Sets a mode of this thread immediately; as a context manager, restores it. Subclasses define the mode."""

    modes: PerThread
    name: str

    def __init__(self, mode: bool):
        self.before, self.mode = getattr(self.modes, self.name), bool(mode)
        self.__enter__()

    def clone(self: M) -> M:
        """Returns a mode like this one, for a further `with` block.

        >>> mode = torch.set_grad_enabled(True)
        >>> type(mode.clone()).__name__
        'set_grad_enabled'
        """
        return self.__class__(self.mode)  # type: ignore[call-arg, attr-defined]

    def __call__(self, function: F) -> F:
        self.__exit__()  # used as a decorator: the mode is to apply during the calls only
        return super().__call__(function)

    def __enter__(self) -> None:
        setattr(self.modes, self.name, self.mode)

    def __exit__(self, *exception: object) -> None:
        setattr(self.modes, self.name, self.before)


class set_grad_enabled(Switch):
    """Enables or disables recording immediately; as a context manager, restores the previous state.

    >>> x = torch.ones(1, requires_grad=True)
    >>> training = False
    >>> with torch.set_grad_enabled(training):
    ...     (2 * x).requires_grad
    False
    """

    modes, name = GRAD, "enabled"


def is_grad_enabled() -> bool:
    """Returns whether ops are recorded in this thread.

    >>> with torch.no_grad():
    ...     torch.is_grad_enabled()
    False
    """
    return GRAD.enabled


class inference_mode(ModeDecorator):
    """Like `no_grad`, but marks the results: they can never take part in autograd, not even later.

    Using such a tensor for backward, or writing to it outside the mode, raises a RuntimeError.

    Args:
        mode: False switches it off.

    >>> w = torch.ones(2, requires_grad=True)
    >>> with torch.inference_mode():
    ...     y = w * 2
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    @overload
    def __new__(cls: type[M], mode: bool = True) -> M: ...
    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]  # it decorates at once
    def __new__(cls, mode=True):
        made = object.__new__(cls)
        if callable(mode):  # `@torch.inference_mode` without parentheses
            made.mode = True
            return made(mode)
        return made

    def __init__(self, mode: bool = True):
        self.mode = bool(mode)

    def clone(self: M) -> M:
        """Returns a mode like this one, for a further `with` block.

        >>> with torch.inference_mode().clone():
        ...     torch.is_inference_mode_enabled()
        True
        """
        return inference_mode(self.mode)  # type: ignore[attr-defined, return-value]

    def __enter__(self) -> None:
        self.before = GRAD.enabled, GRAD.inference
        GRAD.inference = INFERENCE.on = self.mode
        GRAD.enabled = not self.mode
        if self.mode:
            switch(INFERENCE_MODE, True)

    def __exit__(self, *exception: object) -> None:
        GRAD.enabled, GRAD.inference = self.before
        INFERENCE.on = GRAD.inference
        if self.mode:
            switch(INFERENCE_MODE, False)


def is_inference_mode_enabled() -> bool:
    """Returns whether this thread is inside `inference_mode`.

    >>> with torch.inference_mode():
    ...     torch.is_inference_mode_enabled()
    True
    """
    return GRAD.inference
