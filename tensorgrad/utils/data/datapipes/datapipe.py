"""What all datapipes are: data sets with methods that make further ones, such as `pipe.map(f).batch(2)`."""

from __future__ import annotations

import functools
import importlib.util
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from tensorgrad.utils.data.datapipes._hook_iterator import described, one_at_a_time
from tensorgrad.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_ONE_ITERATOR = (
    "\nFor feedback regarding this single iterator per IterDataPipe constraint, feel free to comment on this issue: "
    "https://github.com/pytorch/data/issues/45."
)


class DataChunk(list[T]):
    """A batch of samples: a list.

    >>> torch.utils.data.DataChunk([1, 2]).as_str(">")
    '>[1, 2]'
    """

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(items)
        self.items = list(items) if not isinstance(items, list) else items

    def as_str(self, indent: str = "") -> str:
        """Returns the samples as text."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[T]:
        """Iterates over the samples."""
        return iter(self.items)


class _Pipe:
    """The methods that make further datapipes, and what may be set for how datapipes are pickled and printed."""

    functions: ClassVar[dict[str, Callable]]
    reduce_ex_hook: ClassVar[Callable | None] = None
    getstate_hook: ClassVar[Callable | None] = None
    str_hook: ClassVar[Callable | None] = None
    repr_hook: ClassVar[Callable | None] = None

    def __getattr__(self, name: str) -> Any:
        function = type(self).functions.get(name)
        if function is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        method = functools.partial(function, self)
        functools.update_wrapper(method, function, assigned=("__doc__",))
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]

    @classmethod
    def register_function(cls, function_name: str, function: Callable) -> None:
        """Makes a function a method of all datapipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Makes a class a method of all datapipes of this kind: its first argument is the datapipe.

        Raises:
            Exception: If there is a method of that name.
        """
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")

        def make(pipe: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(pipe, *args, **kwargs)

        cls.functions[function_name] = functools.update_wrapper(
            make, cls_to_register, assigned=("__doc__",), updated=()
        )

    def __getstate__(self) -> Any:
        hook = type(self).getstate_hook
        return self.__dict__ if hook is None else hook(self.__dict__)

    def __reduce_ex__(self, *args: Any, **kwargs: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*args, **kwargs)

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable | None) -> None:
        """Sets the function from a datapipe's attributes to what is pickled of them; None removes it."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        cls.getstate_hook = staticmethod(hook_fn) if hook_fn is not None else None

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable | None) -> None:
        """Sets the function that says how a datapipe is pickled; None removes it."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        cls.reduce_ex_hook = staticmethod(hook_fn) if hook_fn is not None else None

    def __repr__(self) -> str:
        hook = type(self).repr_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __str__(self) -> str:
        hook = type(self).str_hook
        return type(self).__qualname__ if hook is None else hook(self)


class IterDataPipe(_Pipe, IterableDataset[T_co]):
    """Base class of datapipes that are read from start to end: define `__iter__`.

    Each of the registered classes (`functional_datapipe`) is a method: `pipe.map(f)`, `pipe.batch(2)`. Only one
    iterator of a datapipe can be used at a time: reading it anew ends the one before. `reset()`, if it is defined, is
    called whenever reading begins.

    Raises:
        RuntimeError: When an iterator continues after a later one of the same datapipe has begun.

    >>> from tensorgrad.utils.data import IterDataPipe
    >>> class Count(IterDataPipe):
    ...     def __init__(self, n):
    ...         self.n = n
    ...     def __iter__(self):
    ...         yield from range(self.n)
    >>> list(Count(5).map(lambda x: x * x).batch(2))
    [[0, 1], [4, 9], [16]]
    """

    functions: ClassVar[dict[str, Callable]] = {}
    _valid_iterator_id: int | None = None
    _number_of_samples_yielded: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = one_at_a_time(cls.__dict__["__iter__"])

    def __iter__(self) -> Iterator[T_co]:
        return self

    def reset(self) -> None:
        """Prepares for reading from the start."""

    def _begin(self) -> int:
        """Begins reading, and returns the new iterator's number."""
        self._valid_iterator_id = 0 if self._valid_iterator_id is None else self._valid_iterator_id + 1
        self._number_of_samples_yielded = 0
        self.reset()
        return self._valid_iterator_id

    def _require(self, number: int) -> None:
        """Raises if the iterator of that number has ended because a later one began."""
        if number != self._valid_iterator_id:
            raise RuntimeError(
                "This iterator has been invalidated because another iterator has been created from the same "
                f"IterDataPipe: {described(self)}\nThis may be caused by multiple references to the same IterDataPipe. "
                f"We recommend using `.fork()` if that is necessary.{_ONE_ITERATOR}"
            )


class DFIterDataPipe(IterDataPipe):
    """Base class of datapipes of data frames.

    >>> issubclass(torch.utils.data.DFIterDataPipe, torch.utils.data.IterDataPipe)
    True
    """

    def _is_dfpipe(self) -> bool:
        return True


class MapDataPipe(_Pipe, Dataset[T_co]):
    """Base class of datapipes that are read by index or key: define `__getitem__` and, for most uses, `__len__`.

    >>> from tensorgrad.utils.data.datapipes.map import SequenceWrapper
    >>> SequenceWrapper([1, 2, 3]).map(str)[2]
    '3'
    """

    functions: ClassVar[dict[str, Callable]] = {}


class _DataPipeSerializationWrapper:
    """Pickles a datapipe with the package dill, if it is installed, where pickle cannot."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __getstate__(self) -> tuple[bytes, bool]:
        try:
            return pickle.dumps(self._datapipe), False
        except Exception:
            if importlib.util.find_spec("dill") is None:
                raise
            import dill

            return dill.dumps(self._datapipe), True

    def __setstate__(self, state: tuple[bytes, bool]) -> None:
        data, with_dill = state
        if with_dill:
            import dill

            self._datapipe = dill.loads(data)
        else:
            self._datapipe = pickle.loads(data)

    def __len__(self) -> int:
        try:
            return len(self._datapipe)
        except Exception as error:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length") from error


class _IterDataPipeSerializationWrapper(_DataPipeSerializationWrapper, IterDataPipe):
    def __init__(self, datapipe: IterDataPipe) -> None:
        super().__init__(datapipe)
        self._datapipe_iter: Iterator | None = None

    def __iter__(self) -> Iterator:
        self._datapipe_iter = iter(self._datapipe)
        return self

    def __next__(self) -> Any:
        if self._datapipe_iter is None:
            raise AssertionError("Iterator has not been initialized; call __iter__() before __next__()")
        return next(self._datapipe_iter)


class _MapDataPipeSerializationWrapper(_DataPipeSerializationWrapper, MapDataPipe):
    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]
