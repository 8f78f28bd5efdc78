"""Datapipes that call a function with each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tensorgrad.utils.data.collate import default_collate
from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import _check_unpickable_fn, validate_input_col

__all__ = ["CollatorIterDataPipe", "MapperIterDataPipe"]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe):
    """Applies a function to each sample, or to some of its columns (method `map`).

    Args:
        datapipe: The samples.
        fn: The function.
        input_col: The index or key of what it is given; or several, which are its arguments. None: the whole sample.
        output_col: Where the result goes: an index or key, or -1 for a new last column. By default in place of what
            was given; of several, the first, and the others are removed.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([(1, 2), (3, 4)]).map(lambda a, b: a + b, input_col=[0, 1], output_col=-1))
    [(1, 2, 3), (3, 4, 7)]
    """

    def __init__(self, datapipe: Any, fn: Callable, input_col: Any = None, output_col: Any = None) -> None:
        _check_unpickable_fn(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, list | tuple):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col
        validate_input_col(fn, input_col)

    def _mapped(self, sample: Any) -> Any:
        columns = self.input_col
        if columns is None:
            return self.fn(sample)
        several = isinstance(columns, list | tuple)
        result = self.fn(*[sample[column] for column in columns]) if several else self.fn(sample[columns])
        out = list(sample) if isinstance(sample, tuple) else sample
        if self.output_col == -1:
            out.append(result)
        elif self.output_col is not None:
            out[self.output_col] = result
        elif several:
            out[columns[0]] = result
            for column in sorted(columns[1:], reverse=True):
                del out[column]
        else:
            out[columns] = result
        return tuple(out) if isinstance(sample, tuple) else out

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._mapped(sample)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Turns each batch of samples into tensors (method `collate`).

    Args:
        datapipe: The batches.
        conversion: The function from a batch to what it becomes.
        collate_fn: The function, by its older name.

    Raises:
        NotImplementedError: If `conversion` is a dictionary of functions, which PyTorch calls with the columns of data
            frames.

    >>> from tensorgrad.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(3)).batch(2).collate())
    [tensor([0, 1]), tensor([2])]
    """

    def __init__(self, datapipe: Any, conversion: Any = default_collate, collate_fn: Callable | None = None) -> None:
        function = conversion if collate_fn is None else collate_fn
        if isinstance(function, dict):
            raise NotImplementedError(
                "Collator: expected a function of a batch, but got a dictionary. Conversions of the columns of data "
                "frames are not included."
            )
        super().__init__(datapipe, fn=function)
