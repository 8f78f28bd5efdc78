"""Datapipes that join several into one, or split one into several."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes._hook_iterator import described
from tensorgrad.utils.data.datapipes.datapipe import _ONE_ITERATOR, IterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe):
    """Yields the samples of several datapipes one after another (method `concat`).

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(2)).concat(IterableWrapper("ab")))
    [0, 1, 'a', 'b']
    """

    def __init__(self, *datapipes: IterDataPipe) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes: Any = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe):
    """Yields a sample of each datapipe in turn, until one has none left (method `mux`).

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(2)).mux(IterableWrapper("abc")))
    [0, 'a', 1, 'b']
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for turn in zip(*self.datapipes):
            yield from turn

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes) * len(self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe):
    """Yields tuples with one sample of each datapipe, until one has none left (method `zip`).

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(2)).zip(IterableWrapper("abc")))
    [(0, 'a'), (1, 'b')]
    """

    def __init__(self, *datapipes: IterDataPipe) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        self.datapipes: Any = datapipes

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


class _Splitter(IterDataPipe):
    """What several child datapipes read from; it is not read itself."""

    main_datapipe: Any
    num_instances: int

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        """Iterates over the samples of one child."""
        raise NotImplementedError

    def is_every_instance_exhausted(self) -> bool:
        """Returns whether all children have been read to their ends."""
        raise NotImplementedError

    def get_length_by_instance(self, instance_id: int) -> int:
        """Returns the number of samples of one child."""
        raise NotImplementedError


class _ChildDataPipe(IterDataPipe):
    """One of the datapipes that `fork` and `demux` return. Reading one again begins a new round for all of them."""

    def __init__(self, main_datapipe: _Splitter, instance_id: int) -> None:
        self.main_datapipe, self.instance_id = main_datapipe, instance_id

    def __iter__(self) -> Iterator[Any]:
        return self.main_datapipe.get_next_element_by_instance(self.instance_id)

    def __len__(self) -> int:
        return self.main_datapipe.get_length_by_instance(self.instance_id)

    def _begin(self) -> int:
        main = self.main_datapipe
        if main._valid_iterator_id is None or self._valid_iterator_id == main._valid_iterator_id:
            if main._valid_iterator_id is not None and not main.is_every_instance_exhausted():
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are resetting the buffer and "
                    "each child DataPipe will read from the start again.",
                    stacklevel=3,
                )
            main._begin()
        self._valid_iterator_id = main._valid_iterator_id
        self._number_of_samples_yielded = 0
        return main._valid_iterator_id  # type: ignore[return-value]

    def _require(self, number: int) -> None:
        if number != self.main_datapipe._valid_iterator_id:
            raise RuntimeError(
                "This iterator has been invalidated, because a new iterator has been created from one of the "
                f"ChildDataPipes of {described(self.main_datapipe)}.{_ONE_ITERATOR}"
            )


def _check_splitting(num_instances: int, buffer_size: int, name: str) -> None:
    if num_instances < 1:
        raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
    if buffer_size < 0:
        warnings.warn(
            f"Unlimited buffer size is set for `{name}`, please be aware of OOM at random places", stacklevel=4
        )


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe):
    """Returns several datapipes that each yield all samples of one (method `fork`).

    Args:
        datapipe: The samples.
        num_instances: How many datapipes to return; of one, itself.
        buffer_size: By how many samples one of them may be ahead of the others; -1: by any number.
        copy: Whether each of them yields a copy of the samples: "shallow" or "deep".

    Raises:
        BufferError: While reading, if one is too far ahead.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> a, b = IterableWrapper(range(3)).fork(2)
    >>> list(a.zip(b.map(str)))
    [(0, '0'), (1, '1'), (2, '2')]
    """

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        _check_splitting(num_instances, buffer_size, "fork")
        if num_instances == 1:
            return datapipe
        forker = _ForkerIterDataPipe(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(forker, i) for i in range(num_instances)]


def _as_it_is(sample: Any) -> Any:
    return sample


_COPIES: dict[str | None, Callable[[Any], Any]] = {None: _as_it_is, "shallow": copy.copy, "deep": copy.deepcopy}


class _ForkerIterDataPipe(_Splitter):
    def __init__(self, datapipe: Any, num_instances: int, buffer_size: int, copy: str | None) -> None:
        if copy not in _COPIES:
            raise ValueError(f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`.")
        self.main_datapipe, self.num_instances, self.buffer_size = datapipe, num_instances, buffer_size
        self.copy_fn = _COPIES[copy]
        self.reset()

    def reset(self) -> None:
        self._source: Iterator | None = None
        self._buffer: deque = deque()  # what the leading child has read, and the slowest has not
        self._read = [0] * self.num_instances  # the number of samples that each child has read
        self._number: int | None = None  # how many samples there are, once that is known

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        if self._source is None:
            self._source = iter(self.main_datapipe)
        while True:
            slowest, leading = min(self._read), max(self._read)
            if self._read[instance_id] < leading:
                sample = self._buffer[self._read[instance_id] - slowest]
            else:
                try:
                    sample = next(self._source)
                except StopIteration:
                    self._number = leading
                    return
                if 0 <= self.buffer_size <= leading - slowest:
                    raise BufferError(
                        f"ForkerIterDataPipe buffer overflow,buffer size {self.buffer_size} is insufficient."
                    )
                self._buffer.append(sample)
            self._read[instance_id] += 1
            if min(self._read) > slowest:
                self._buffer.popleft()
            yield self.copy_fn(sample)

    def is_every_instance_exhausted(self) -> bool:
        return self._number is not None and min(self._read) == self._number

    def get_length_by_instance(self, instance_id: int) -> int:
        return len(self.main_datapipe)

    def __len__(self) -> int:
        return len(self.main_datapipe)

    def __getstate__(self) -> Any:
        return _settings(self, "_source", "_buffer", "_read", "_number")

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self.reset()


def _settings(pipe: _Splitter, *progress: str) -> Any:
    """What is pickled: how far it has been read is not."""
    left_out = {*progress, "_valid_iterator_id", "_number_of_samples_yielded"}
    state = {name: value for name, value in vars(pipe).items() if name not in left_out}
    return state if IterDataPipe.getstate_hook is None else IterDataPipe.getstate_hook(state)


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe):
    """Returns several datapipes, to which a function distributes the samples of one (method `demux`).

    Args:
        datapipe: The samples.
        num_instances: How many datapipes to return.
        classifier_fn: The function from a sample to the number of its datapipe.
        drop_none: Whether to leave out samples for which the function returns None.
        buffer_size: How many samples may wait to be read; -1: any number.

    Raises:
        BufferError: While reading, if too many wait.
        ValueError: While reading, if the function returns no number of a datapipe.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> even, odd = IterableWrapper(range(5)).demux(2, lambda x: x % 2)
    >>> list(even), list(odd)
    ([0, 2, 4], [1, 3])
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], int | None],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        if num_instances >= 1:
            _check_unpickable_fn(classifier_fn)
        _check_splitting(num_instances, buffer_size, "demux")
        main = _DemultiplexerIterDataPipe(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_ChildDataPipe(main, i) for i in range(num_instances)]


class _DemultiplexerIterDataPipe(_Splitter):
    def __init__(
        self, datapipe: Any, num_instances: int, classifier_fn: Callable, drop_none: bool, buffer_size: int
    ) -> None:
        self.main_datapipe, self.num_instances, self.buffer_size = datapipe, num_instances, buffer_size
        self.classifier_fn, self.drop_none = classifier_fn, drop_none
        self.reset()

    def reset(self) -> None:
        self._source: Iterator | None = None
        self._waiting: list[deque] = [deque() for _ in range(self.num_instances)]
        self._ended = False

    def _next(self, instance_id: int) -> Any:
        assert self._source is not None
        for sample in self._source:
            number = self.classifier_fn(sample)
            if number is None and self.drop_none:
                continue
            if not isinstance(number, int) or not 0 <= number < self.num_instances:
                raise ValueError(
                    f"Output of the classification fn should be between 0 and {self.num_instances - 1}. {number} is "
                    "returned."
                )
            if number == instance_id:
                return sample
            if 0 <= self.buffer_size <= sum(map(len, self._waiting)):
                raise BufferError(
                    f"DemultiplexerIterDataPipe buffer overflow, buffer size {self.buffer_size} is insufficient."
                )
            self._waiting[number].append(sample)
        self._ended = True
        raise StopIteration

    def get_next_element_by_instance(self, instance_id: int) -> Iterator[Any]:
        if self._source is None:
            self._source = iter(self.main_datapipe)
        waiting = self._waiting[instance_id]
        while waiting or not self._ended:
            try:
                yield waiting.popleft() if waiting else self._next(instance_id)
            except StopIteration:
                return

    def is_every_instance_exhausted(self) -> bool:
        return self._ended and not any(self._waiting)

    def get_length_by_instance(self, instance_id: int) -> int:
        raise TypeError

    def __getstate__(self) -> Any:
        return _settings(self, "_source", "_waiting", "_ended")

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self.reset()
