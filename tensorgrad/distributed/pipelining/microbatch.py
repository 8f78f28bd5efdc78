"""Cuts the arguments of a model into microbatches, and puts their results together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

DEFAULT_CHUNK_DIM = 0


class TensorChunkSpec:
    """Along which dimension a tensor is cut into microbatches.

    Args:
        split_dim: the dimension.

    >>> from tensorgrad.distributed.pipelining.microbatch import TensorChunkSpec
    >>> print(TensorChunkSpec(1))
    TensorChunkSpec(1)
    """

    split_dim: int

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{self.__class__.__module__}.{self.__class__.__name__}({self.split_dim})"

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """Returns a tuple of specifications.

        >>> from tensorgrad.distributed.pipelining.microbatch import TensorChunkSpec
        >>> [str(spec) for spec in TensorChunkSpec.from_tuple((0, 1))]
        ['TensorChunkSpec(0)', 'TensorChunkSpec(1)']
        """
        return tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """Returns a dictionary of specifications.

        >>> from tensorgrad.distributed.pipelining.microbatch import TensorChunkSpec
        >>> str(TensorChunkSpec.from_dict({"mask": 1})["mask"])
        'TensorChunkSpec(1)'
        """
        return tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """Every microbatch gets the whole value."""


class _CustomReducer:
    """How the results of microbatches become one: `reduce_fn(reduce_fn(init_value, first), second)`, and so on."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    """A reducer for losses."""


sum_reducer = _LossReducer(torch.tensor(0.0), operator.add)


def _default_spec(value: Any) -> Any:
    return TensorChunkSpec(DEFAULT_CHUNK_DIM) if isinstance(value, torch.Tensor) else _Replicate()


def _is_replicate(spec: Any) -> bool:
    return spec is _Replicate or isinstance(spec, _Replicate)


def _split_tensor(tensor: Any, spec: TensorChunkSpec, num_chunks: int) -> Sequence[Any]:
    """The parts of a tensor, whose sizes differ by one at most."""
    if tensor.size(spec.split_dim) < num_chunks:
        raise AssertionError(f"Tensor size {tensor.size(spec.split_dim)} is smaller than num_chunks")
    chunks = torch.tensor_split(tensor, num_chunks, spec.split_dim)
    if tensor.requires_grad and tensor.is_leaf:
        for chunk in chunks:
            chunk.retain_grad()
    return chunks


def _shard_dict_of_args(args: dict[Any, Any], specs: dict[Any, Any], num_chunks: int) -> list[dict[Any, Any]]:
    """The arguments of each microbatch: as many as asked for, unless a tensor is too short."""
    if not args:
        return [{} for _ in range(num_chunks)]
    if len(args) != len(specs):
        raise AssertionError(f"args_dict.keys() = {list(args)} args_chunk_spec.keys() = {list(specs)}")
    values, nesting = tree_flatten(args)
    flat_specs, _ = tree_flatten(specs)
    sizes = [num_chunks]
    for value, spec in zip(values, flat_specs, strict=True):
        if _is_replicate(spec):
            continue
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"Unsupported chunk spec: {spec} and value: {value} combination.")
        if not isinstance(spec, TensorChunkSpec):
            raise AssertionError(f"Expected TensorChunkSpec, got {type(spec)}")
        sizes.append(value.size(spec.split_dim))
    count = min(sizes)
    parts = [
        [value] * count if _is_replicate(spec) else _split_tensor(value, spec, count)
        for value, spec in zip(values, flat_specs)
    ]
    return [tree_unflatten([part[i] for part in parts], nesting) for i in range(count)]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
    kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Cuts arguments into microbatches.

    Args:
        args: positional arguments, also nested.
        kwargs: keyword arguments; None for no more.
        chunks: how many microbatches; there are fewer if a tensor is shorter than that.
        args_chunk_spec: for each positional argument, how it is cut. If None, tensors are cut along dimension 0, and
            other values go to all microbatches.
        kwargs_chunk_spec: the same for keyword arguments.

    Returns:
        The positional arguments of each microbatch, and the keyword arguments of each.

    Raises:
        AssertionError, ValueError: the specifications do not fit.

    >>> from tensorgrad.distributed.pipelining.microbatch import split_args_kwargs_into_chunks
    >>> split_args_kwargs_into_chunks((torch.arange(3),), {"flag": True}, 2)
    ([(tensor([0, 1]),), (tensor([2]),)], [{'flag': True}, {'flag': True}])
    """
    kwargs = {} if kwargs is None else kwargs
    arg_specs = tree_map(_default_spec, args) if args_chunk_spec is None else args_chunk_spec
    kwarg_specs = tree_map(_default_spec, kwargs) if kwargs_chunk_spec is None else kwargs_chunk_spec
    numbered, numbered_specs = dict(enumerate(args)), dict(enumerate(arg_specs))
    args_split = _shard_dict_of_args(numbered, numbered_specs, chunks)
    kwargs_split = _shard_dict_of_args(kwargs, kwarg_specs, len(args_split))
    if len(kwargs_split) < len(args_split):
        args_split = _shard_dict_of_args(numbered, numbered_specs, len(kwargs_split))
    return [tuple(part[i] for i in range(len(part))) for part in args_split], kwargs_split


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """Puts the results of microbatches together.

    Args:
        chunks: the results, all with the same nesting.
        chunk_spec: for each value, along which dimension it is joined; a value without a `TensorChunkSpec` must be the
            same in all chunks. If None, all values are tensors and are joined along dimension 0.

    Raises:
        ValueError: a chunk does not fit the specification.
        AssertionError: a value that is to be the same is not.

    >>> from tensorgrad.distributed.pipelining.microbatch import merge_chunks
    >>> merge_chunks([torch.ones(2), torch.zeros(1)], None)
    tensor([1., 1., 0.])
    """
    if chunk_spec is None:
        first, nesting = tree_flatten(chunks[0])
        specs: list[Any] = [TensorChunkSpec(DEFAULT_CHUNK_DIM)] * len(first)
    else:
        specs, nesting = tree_flatten(chunk_spec)
    rows = []
    for chunk in chunks:
        rows.append(tree_flatten(chunk)[0])
        if len(rows[-1]) != len(specs):
            raise ValueError(f"Chunk {chunk} did not match chunk spec {chunk_spec}")
    merged = []
    for spec, values in zip(specs, zip(*rows)):
        if isinstance(spec, TensorChunkSpec):
            merged.append(torch.cat(values, dim=spec.split_dim))
        elif isinstance(spec, _CustomReducer):
            total = spec.init_value
            for value in values:
                total = spec.reduce_fn(total, value)
            merged.append(total)
        else:
            for value in values[1:]:
                if not value == values[0]:
                    raise AssertionError(f"Expected {values[0]}, got {value}")
            merged.append(values[0])
    return tree_unflatten(merged, nesting)
