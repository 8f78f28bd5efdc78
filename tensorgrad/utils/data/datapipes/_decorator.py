"""Decorators of datapipe classes: a method's name, randomness that can be forbidden, types of arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, ClassVar

from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """Makes a datapipe class a method of all datapipes of its kind.

    Args:
        name: The method's name.
        enable_df_api_tracing: Accepted and ignored: there are no datapipes of data frames.

    Raises:
        Exception: If there is a method of that name.

    >>> from tensorgrad.utils.data import IterDataPipe, functional_datapipe
    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> @functional_datapipe("twice")
    ... class Twice(IterDataPipe):
    ...     def __init__(self, source):
    ...         self.source = source
    ...     def __iter__(self):
    ...         for x in self.source:
    ...             yield from (x, x)
    >>> list(IterableWrapper([1, 2]).twice())
    [1, 1, 2, 2]
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        for kind in (IterDataPipe, MapDataPipe):
            if issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls)
        return cls


class guaranteed_datapipes_determinism:
    """In this context, datapipes that are marked `non_deterministic` cannot be made.

    >>> from tensorgrad.utils.data import IterDataPipe, guaranteed_datapipes_determinism, non_deterministic
    >>> @non_deterministic(lambda seed=None: seed is None)
    ... class Drawn(IterDataPipe):
    ...     def __init__(self, seed=None):
    ...         self.seed = seed
    >>> with guaranteed_datapipes_determinism():
    ...     print(Drawn(seed=3))
    Drawn
    """

    _on: ClassVar[bool] = False

    def __enter__(self) -> None:
        self._before = guaranteed_datapipes_determinism._on
        guaranteed_datapipes_determinism._on = True

    def __exit__(self, *_: Any) -> None:
        guaranteed_datapipes_determinism._on = self._before


class non_deterministic:
    """Marks a datapipe class whose order may differ from run to run, or does so for some arguments.

    Args:
        arg: The class; or a function of its arguments that returns whether the order may differ with them.

    Raises:
        TypeError: If it is neither; and from the class, within `guaranteed_datapipes_determinism`.

    >>> from tensorgrad.utils.data import IterDataPipe, guaranteed_datapipes_determinism, non_deterministic
    >>> @non_deterministic
    ... class Guesses(IterDataPipe):
    ...     pass
    >>> with guaranteed_datapipes_determinism():
    ...     Guesses()
    Traceback (most recent call last):
        ...
    TypeError: Guesses is non-deterministic, but you set 'guaranteed_datapipes_determinism'. You can turn off \
determinism for this DataPipe if that is acceptable for your application
    """

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        self.deterministic_fn: Callable[..., bool] | None = None
        if inspect.isclass(arg):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found"
                )
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            self.cls = args[0]
            return self.deterministic_wrapper_fn
        if guaranteed_datapipes_determinism._on:
            raise TypeError(self._message(""))
        return self.cls(*args, **kwargs)

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Makes a datapipe of the class."""
        differs = self.deterministic_fn is not None and self.deterministic_fn(*args, **kwargs)
        if not isinstance(differs, bool):
            raise TypeError(
                "deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but "
                f"{type(differs)} is found"
            )
        if differs and guaranteed_datapipes_determinism._on:
            raise TypeError(self._message(" with the inputs"))
        return self.cls(*args, **kwargs)

    def _message(self, when: str) -> str:
        return (
            f"{self.cls.__name__} is non-deterministic{when}, but you set 'guaranteed_datapipes_determinism'. You can "
            "turn off determinism for this DataPipe if that is acceptable for your application"
        )


def argument_validation(f: Callable) -> Callable:
    """Has a function raise a TypeError if an argument annotated as `IterDataPipe` is something else.

    >>> from tensorgrad.utils.data import IterDataPipe, argument_validation
    >>> @argument_validation
    ... def read(pipe: IterDataPipe):
    ...     return list(pipe)
    >>> read([1, 2])
    Traceback (most recent call last):
        ...
    TypeError: Expected argument 'pipe' as a IterDataPipe, but found <class 'list'>
    """
    signature, hints = inspect.signature(f), typing.get_type_hints(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if hints.get(name) is IterDataPipe and not isinstance(value, IterDataPipe):
                raise TypeError(f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


class runtime_validation_disabled:
    """A context without `runtime_validation`.

    >>> from collections.abc import Iterator
    >>> from tensorgrad.utils.data import IterDataPipe, runtime_validation, runtime_validation_disabled
    >>> class Names(IterDataPipe):
    ...     @runtime_validation
    ...     def __iter__(self) -> Iterator[str]:
    ...         yield 1
    >>> with runtime_validation_disabled():
    ...     list(Names())
    [1]
    """

    _on: ClassVar[bool] = True

    def __enter__(self) -> None:
        self._before = runtime_validation_disabled._on
        runtime_validation_disabled._on = False

    def __exit__(self, *_: Any) -> None:
        runtime_validation_disabled._on = self._before


def runtime_validation(f: Callable) -> Callable:
    """Has an `__iter__` annotated `-> Iterator[SomeClass]` raise a RuntimeError if it yields something else.

    >>> from collections.abc import Iterator
    >>> from tensorgrad.utils.data import IterDataPipe, runtime_validation
    >>> class Names(IterDataPipe):
    ...     @runtime_validation
    ...     def __iter__(self) -> Iterator[str]:
    ...         yield 1
    >>> list(Names())
    Traceback (most recent call last):
        ...
    RuntimeError: Expected an instance as subtype of <class 'str'>, but found 1(<class 'int'>)
    This exception is thrown by __iter__ of Names()
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")
    arguments = typing.get_args(typing.get_type_hints(f).get("return"))
    kind: Any = arguments[0] if arguments and inspect.isclass(arguments[0]) else object

    @functools.wraps(f)
    def checked(self: Any) -> Any:
        for item in f(self):
            if runtime_validation_disabled._on and not isinstance(item, kind):
                raise RuntimeError(f"Expected an instance as subtype of {kind}, but found {item}({type(item)})")
            yield item

    return checked
