"""Combines samples into a batch: in any nested structure, each leaf becomes one tensor with a new first dimension."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.tensor import Tensor

_MESSAGE = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_collate(batch: list) -> Any:
    """Combines a list of samples into one batch.

    Tensors, arrays and numbers are stacked along a new first dimension. Tuples become lists of batches, one per
    element; lists, named tuples and dictionaries keep their type; strings stay a list.

    Raises:
        TypeError: If the samples are of an unsupported type.
        RuntimeError: If sequences have different lengths.

    >>> from tensorgrad.utils.data import default_collate
    >>> default_collate([{"x": torch.zeros(2), "y": 0}, {"x": torch.ones(2), "y": 1}])
    {'x': tensor([[0., 0.],
            [1., 1.]]), 'y': tensor([0, 1])}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: list, *, collate_fn_map: dict[Any, Callable] | None = None) -> Any:
    """Like `default_collate`, with your own function for each type of leaf.

    Args:
        batch: a list of samples.
        collate_fn_map: maps a type, or a tuple of types, to `function(samples, *, collate_fn_map)`.
    """
    first = batch[0]
    functions = collate_fn_map or {}
    function = functions.get(type(first))
    if function is None:
        function = next((f for kind, f in functions.items() if isinstance(first, kind)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)

    def together(samples: Any) -> Any:
        return collate(samples, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return like_mapping(first, {key: together([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(together(elements) for elements in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        batches = [together(elements) for elements in zip(*batch, strict=True)]
        return batches if isinstance(first, tuple) else like_sequence(first, batches)
    raise TypeError(_MESSAGE.format(type(first)))


def default_convert(data: Any) -> Any:
    """Converts the arrays and NumPy scalars in a single sample to tensors, keeping its structure.

    The tensors share memory with the arrays. Arrays of strings or objects, and values of other types, are returned
    unchanged. Tuples become lists, as in batches; named tuples, lists and dictionaries keep their type.

    >>> import numpy as np
    >>> torch.utils.data.default_convert({"x": np.array([1, 2]), "name": "a"})
    {'x': tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic) and not isinstance(data, np.str_):
        return data if isinstance(data, np.ndarray) and data.dtype.kind in "SUO" else torch.as_tensor(data)
    if isinstance(data, Mapping):
        return like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        converted = [default_convert(value) for value in data]
        return converted if isinstance(data, tuple) else like_sequence(data, converted)
    return data


def like_mapping(example: Any, values: dict) -> Any:
    """Returns `values` as a mapping of the example's type, with its other attributes; a dict if that fails."""
    try:
        if isinstance(example, MutableMapping):
            clone = copy.copy(example)
            clone.update(values)
            return clone
        return type(example)(values)
    except TypeError:
        return values


def like_sequence(example: Any, values: list) -> Any:
    try:
        if isinstance(example, MutableSequence):
            clone = copy.copy(example)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(example)(values)
    except TypeError:
        return values


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Stacks tensors."""
    return torch.stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stacks arrays into one tensor. Raises: TypeError for strings and objects."""
    if batch[0].dtype.kind in "SUO":
        raise TypeError(_MESSAGE.format(batch[0].dtype))
    return collate([torch.as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Makes a tensor of NumPy's scalars."""
    return torch.as_tensor(np.array(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Makes a float64 tensor."""
    return torch.as_tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Makes an integer tensor."""
    return torch.as_tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Leaves strings as they are."""
    return batch


default_collate_fn_map: dict[Any, Callable] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
