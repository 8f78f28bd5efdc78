"""Turns sample indices into a batch, in the main process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tensorgrad.utils.data.collate import default_collate
from tensorgrad.utils.data.dataset import Subset, TensorDataset


def by_number(dataset: Any, collate_fn: Callable, batched: bool) -> Callable[[Any], Any]:
    """Returns the function from a sample's index (a list of them if `batched`) to the loader's output."""
    if not batched:
        return lambda number: collate_fn(dataset[number])
    rows = _rows(dataset) if collate_fn is default_collate else None
    if rows is not None:
        return rows
    several = getattr(dataset, "__getitems__", None)
    if several:
        return lambda numbers: collate_fn(several(numbers))
    return lambda numbers: collate_fn([dataset[number] for number in numbers])


def _rows(dataset: Any) -> Callable[[list[int]], list] | None:
    """Returns a function that reads a whole batch of rows at once; None unless that equals reading and stacking them
    one by one.
    """
    if type(dataset) is Subset:
        inner, indices = _rows(dataset.dataset), dataset.indices
        return None if inner is None else lambda numbers: inner([indices[i] for i in numbers])
    if type(dataset) is not TensorDataset or any(tensor.requires_grad for tensor in dataset.tensors):
        return None
    return lambda numbers: [tensor[numbers] for tensor in dataset.tensors]


def in_sequence(dataset: Any, collate_fn: Callable, batch_size: int | None, drop_last: bool) -> Iterator[Any]:
    """Iterates over the batches of an iterable data set, or over its single samples if `batch_size` is None."""
    samples = iter(dataset)  # now rather than with the first batch: it may draw random numbers
    if batch_size is None:
        return map(collate_fn, samples)
    ended = False

    def batch() -> Any:
        nonlocal ended
        portion = [] if ended else list(islice(samples, batch_size))
        ended = len(portion) < batch_size
        if not portion or (ended and drop_last):
            raise StopIteration
        return collate_fn(portion)

    return iter(batch, object())  # unlike a generator, this can continue after an error in collate_fn


class ByNumber:
    """PyTorch's form of `by_number`: `fetch(index)` returns the batch."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        self.dataset, self.fetch = dataset, by_number(dataset, collate_fn, auto_collation)


class InSequence:
    """PyTorch's form of `in_sequence`: `fetch(indices)` returns the next batch, of as many samples as indices."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        self.dataset, self.dataset_iter, self.ended = dataset, iter(dataset), False
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """Returns the next batch, or sample. Raises: StopIteration at the end."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = list(islice(self.dataset_iter, len(possibly_batched_index)))
        self.ended = len(samples) < len(possibly_batched_index)
        if not samples or (self.ended and self.drop_last):
            raise StopIteration
        return self.collate_fn(samples)
