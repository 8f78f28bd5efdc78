"""Dynamic dimensions: which the user names, and the sizes at which a program is recorded to find what follows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorgrad.capture.values import mapped, tensors
from tensorgrad.nn import Module
from tensorgrad.onnx.errors import OnnxExporterError
from tensorgrad.tensor import Tensor


@dataclass
class Dimension:
    """A dynamic dimension.

    Attributes:
        name: its name in the exported model.
        size: in the example.
        places: the inputs that have it, and where: (number of the tensor, axis).
        least, most: the sizes that it may have.
    """

    name: str
    size: int
    places: list[tuple[int, int]] = field(default_factory=list)
    least: int = 0
    most: float = float("inf")


def from_axes(dynamic_axes: Any, names: list[str], examples: list[Tensor]) -> list[Dimension]:
    """The dimensions of `dynamic_axes={"input": {0: "batch"}}` or `{"input": [0]}`."""
    found: dict[str, Dimension] = {}
    for name, axes in dynamic_axes.items():
        if name not in names:
            continue  # of an output: its sizes follow
        number = names.index(name)
        if not isinstance(axes, dict):
            axes = {axis: f"{name}_dynamic_axes_{i + 1}" for i, axis in enumerate(axes)}
        for axis, label in axes.items():
            _enter(found, str(label), number, axis, examples)
    return list(found.values())


def from_shapes(
    function: Any, args: tuple, kwargs: dict, dynamic_shapes: Any, examples: list[Tensor]
) -> list[Dimension]:
    """The dimensions of `dynamic_shapes`, which has the structure of the arguments."""
    if isinstance(dynamic_shapes, dict):
        forward = function.forward if isinstance(function, Module) else function
        try:
            bound = inspect.signature(forward).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            bound = dict(kwargs)
        names = {**bound, **kwargs}
        unknown = set(dynamic_shapes) - set(names)
        if unknown and not (len(unknown) == 1 and "kwargs" in unknown):
            raise ValueError(
                f"onnx.export(): dynamic_shapes names {sorted(unknown)}; the arguments are {sorted(names)}"
            )
        pairs = [(value, dynamic_shapes.get(name)) for name, value in names.items()]
    else:
        given = (*args, *kwargs.values())
        pairs = list(zip(given, (*dynamic_shapes, *(None,) * (len(given) - len(dynamic_shapes))), strict=True))
    numbers = {id(t): i for i, t in reversed(list(enumerate(examples)))}
    found: dict[str, Dimension] = {}
    for value, spec in pairs:
        for tensor, axes in _paired(value, spec):
            if axes is None:
                continue
            if not isinstance(axes, dict):
                axes = dict(enumerate(axes))
            for axis, dim in axes.items():
                if dim is None or (isinstance(dim, int) and not isinstance(dim, bool)):
                    continue
                number = numbers[id(tensor)]
                label = dim if isinstance(dim, str) else getattr(dim, "__name__", None) or f"dim_{number}_{axis}"
                entry = _enter(found, label, number, axis, examples)
                entry.least = max(entry.least, getattr(dim, "min", 0) or 0)
                most = getattr(dim, "max", None)
                entry.most = min(entry.most, float("inf") if most is None else most)
    return list(found.values())


def _paired(value: Any, spec: Any) -> Iterator[tuple[Tensor, Any]]:
    """The tensors in an argument, each with what `dynamic_shapes` says of it."""
    if isinstance(value, Tensor):
        yield value, spec
    elif spec is None:
        return
    elif isinstance(value, list | tuple):
        for v, s in zip(value, spec, strict=True):
            yield from _paired(v, s)
    elif isinstance(value, dict):
        for key, v in value.items():
            yield from _paired(v, spec.get(key))
    else:
        flat: list[Any] = []

        def collect(s: Any) -> None:
            if isinstance(s, list | tuple) and any(isinstance(v, dict | list | tuple) for v in s):
                for v in s:
                    collect(v)
            else:
                flat.append(s)

        collect(spec)
        yield from zip(tensors(value), flat, strict=False)


def _enter(found: dict[str, Dimension], label: str, number: int, axis: Any, examples: list[Tensor]) -> Dimension:
    shape = examples[number].shape
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"onnx.export(): input {number} of shape {list(shape)} has no dimension {axis!r} to be dynamic"
        )
    size = shape[axis]
    entry = found.setdefault(label, Dimension(label, size))
    if entry.size != size:
        raise ValueError(
            f"onnx.export(): the dynamic dimension {label!r} is {entry.size} in one input, {size} in another"
        )
    entry.places.append((number, axis % len(shape)))
    return entry


# Sizes to try: for a dimension of size n, the i-th of them, alone and together with the others.
TRIALS: tuple[tuple[Callable[[int, int], int], Callable[[int, int], int]], ...] = (
    (lambda n, i: n + 1 + i, lambda n, i: n + 3 + 2 * i),
    (lambda n, i: 2 * n + n * i, lambda n, i: 3 * n + 2 * n * i),
    (lambda n, i: n + 8 * (1 + i), lambda n, i: n + 16 * (1 + i) + 8),
    (lambda n, i: n + 32 * (1 + i), lambda n, i: n + 64 * (1 + i) + 32),
    (lambda n, i: n - 1 - i, lambda n, i: n - 2 - i),
    (lambda n, i: n // 2, lambda n, i: n // 4),
)


def trials(dimensions: list[Dimension]) -> Iterator[list[dict[str, int]]]:
    """Yields lists of sizes at which to record: the example's, each dimension changed alone, and all together.

    An example of size 1 is recorded at size 2 first: programs do other things with a dimension of size 1.
    """
    base = {d.name: max(d.size, 2) if d.most >= 2 else d.size for d in dimensions}
    for alone, together in TRIALS:
        one = {d.name: alone(base[d.name], i) for i, d in enumerate(dimensions)}
        all_ = {d.name: together(base[d.name], i) for i, d in enumerate(dimensions)}
        chosen = [base, *({**base, d.name: one[d.name]} for d in dimensions), all_]
        if all(max(d.least, 1) <= sizes[d.name] <= d.most for sizes in chosen for d in dimensions):
            yield chosen


def resized(args: Any, examples: list[Tensor], dimensions: list[Dimension], sizes: dict[str, int]) -> Any:
    """The arguments with other sizes: rows are repeated, or left out."""
    import tensorgrad

    numbers = iter(range(len(examples)))
    wanted: dict[int, dict[int, int]] = {}
    for d in dimensions:
        for number, axis in d.places:
            wanted.setdefault(number, {})[axis] = sizes[d.name]

    def change(tensor: Tensor) -> Tensor:
        for axis, size in wanted.get(next(numbers), {}).items():
            if tensor.shape[axis] != size:
                if not tensor.shape[axis]:
                    raise OnnxExporterError("onnx.export(): a dynamic dimension is 0 in the example; give a larger one")
                at = tensorgrad.arange(size) % tensor.shape[axis]
                tensor = tensor.index_select(axis, at)
        return tensor

    return mapped(args, change)
