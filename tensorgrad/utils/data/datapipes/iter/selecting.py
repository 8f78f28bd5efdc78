"""The datapipe that leaves samples out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import _check_unpickable_fn, validate_input_col

__all__ = ["FilterIterDataPipe"]


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe):
    """Yields the samples for which a function returns True (method `filter`).

    Args:
        datapipe: The samples.
        filter_fn: The function.
        input_col: The index or key of what it is given; or several, which are its arguments. None: the whole sample.

    Raises:
        ValueError: While reading, if the function returns something else than True or False.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(6)).filter(lambda x: x % 3 == 0))
    [0, 3]
    """

    def __init__(self, datapipe: IterDataPipe, filter_fn: Callable, input_col: Any = None) -> None:
        _check_unpickable_fn(filter_fn)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col
        validate_input_col(filter_fn, input_col)

    def _chosen(self, sample: Any) -> bool:
        columns = self.input_col
        if columns is None:
            chosen = self.filter_fn(sample)
        elif isinstance(columns, list | tuple):
            chosen = self.filter_fn(*[sample[column] for column in columns])
        else:
            chosen = self.filter_fn(sample[columns])
        if not isinstance(chosen, bool):
            raise ValueError("Boolean output is required for `filter_fn` of FilterIterDataPipe, got", type(chosen))
        return chosen

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self._chosen(sample):
                yield sample
