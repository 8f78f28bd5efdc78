"""`torch.nn.parallel.scatter_gather`: splits batches over devices, and joins results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorgrad.devices import device
from tensorgrad.ops.join import cat
from tensorgrad.tensor import Tensor

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _device(target: Any) -> device:
    return device("cuda", target) if isinstance(target, int) else device(target)


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_asdict") and hasattr(value, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[int | str | device], dim: int = 0) -> Any:
    """Splits the tensors in `inputs` along `dim` into a part for each device; copies references to everything else.

    Args:
        inputs: A tensor, or nested lists, tuples and dicts of tensors and other values.
        target_gpus: The devices; a number n is the GPU n.
        dim: The dimension along which tensors are split.

    Returns:
        A list (of a tensor: a tuple) with one element for each device, nested as `inputs` is; fewer if the tensors
        are too short.

    >>> from tensorgrad.nn.parallel.scatter_gather import scatter
    >>> scatter({"x": torch.arange(3), "name": "a"}, ["cpu", "cpu"])
    [{'x': tensor([0, 1]), 'name': 'a'}, {'x': tensor([2]), 'name': 'a'}]
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return tuple(part.to(_device(target)) for part, target in zip(parts, target_gpus))
    if isinstance(inputs, tuple | list | dict) and len(inputs) > 0:
        kind: Any = type(inputs)
        values = inputs.items() if isinstance(inputs, dict) else inputs
        rows = zip(*(scatter(value, target_gpus, dim) for value in values))
        if _is_namedtuple(inputs):
            return [kind(*row) for row in rows]
        return list(rows) if isinstance(inputs, tuple) else [kind(row) for row in rows]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Sequence[int | str | device], dim: int = 0
) -> tuple[tuple, tuple]:
    """Splits positional and keyword arguments as `scatter` does. Returns a tuple for each, of the same length.

    >>> from tensorgrad.nn.parallel.scatter_gather import scatter_kwargs
    >>> scatter_kwargs((torch.arange(2),), {"scale": 3}, ["cpu", "cpu"])
    (((tensor([0]),), (tensor([1]),)), ({'scale': 3}, {'scale': 3}))
    """
    positional = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    length = max(len(positional), len(named))
    positional += [() for _ in range(length - len(positional))]
    named += [{} for _ in range(length - len(named))]
    return tuple(positional), tuple(named)


def gather(outputs: Sequence[Any], target_device: int | str | device, dim: int = 0) -> Any:
    """Joins the results of several devices along `dim`, on one device: the reverse of `scatter`.

    Args:
        outputs: The results: tensors, or lists, tuples and dicts of tensors, nested alike.
        target_device: Where the result is; a number n is the GPU n.
        dim: The dimension along which tensors are joined. Scalars become the elements of a vector.

    Raises:
        ValueError: If dicts have different numbers of keys.

    >>> from tensorgrad.nn.parallel.scatter_gather import gather
    >>> gather([{"x": torch.ones(1)}, {"x": torch.zeros(2)}], "cpu")
    {'x': tensor([1., 0., 0.])}
    """
    first: Any = outputs[0]
    if isinstance(first, Tensor):
        target = _device(target_device)
        parts = [output.to(target) for output in outputs]
        return cat([part.reshape(1) for part in parts] if first.dim() == 0 else parts, dim)
    if first is None:
        return None
    kind: Any = type(first)
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return kind((key, gather([output[key] for output in outputs], target_device, dim)) for key in first)
    rows = [gather(row, target_device, dim) for row in zip(*outputs, strict=True)]
    return kind._make(rows) if _is_namedtuple(first) else kind(rows)
