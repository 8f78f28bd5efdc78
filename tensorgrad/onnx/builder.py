"""Builds a graph of ONNX operators: values, nodes, constants, names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tensorgrad.dtypes import BY_NAME, bool, complex128, float16, float32, float64, int64
from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.fx import Node as Source
from tensorgrad.onnx.branches import Choice
from tensorgrad.onnx.errors import SymbolicValueError
from tensorgrad.onnx.model import Node, TensorData, element_type
from tensorgrad.onnx.origins import texts
from tensorgrad.onnx.sizes import Size, Varying, divided, linear, merged, product

__all__ = ["Builder", "Value", "bool", "complex128", "float16", "float32", "float64", "int64"]


@dataclass(eq=False)
class Value:
    """A tensor of the graph.

    Attributes:
        name: its name in the graph; empty for a constant that nothing uses yet.
        dtype: of its elements.
        shapes: its shape in each recording, where it is known.
        array: the values of a constant.
        reshaped_from: the value that it is in another shape.
    """

    name: str
    dtype: Dtype
    shapes: list[tuple[int, ...]] | None = None
    array: np.ndarray | None = None
    reshaped_from: Value | None = None

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """Its shape: a dimension that depends on a dynamic one is a `Size`."""
        if self.array is not None:
            return self.array.shape
        assert self.shapes is not None, f"onnx: the shape of {self.name} is not known"
        return merged(self.shapes)

    @property
    def rank(self) -> int:
        """The number of its dimensions."""
        return len(self.shape)


class Builder:
    """A graph that is being built. Translations call its methods; each adds nodes and returns values."""

    def __init__(self, opset: int, recordings: int) -> None:
        self.opset, self.recordings = opset, recordings
        self.nodes: list[Node] = []
        self.initializers: dict[str, TensorData] = {}
        self.inputs: list[Value] = []
        self.domains: set[str] = set()
        self.choices: dict[str, Choice] = {}  # results of branches and loops (branches.py)
        self._taken: set[str] = set()
        self._constants: dict[tuple, str] = {}
        self._sizes: dict[tuple, Value] = {}
        # What the step that is being translated makes, and takes.
        self.results: list[tuple[Dtype | None, list | None]] = []
        self.near: list[Value] = []
        self.origin: dict[str, str] = {}  # where it comes from (origins.py)

    # --- names and constants -----------------------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """A name that nothing has."""
        base, n = name, 0
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._taken.add(name)
        return name

    def constant(self, array: Any, dtype: Dtype | None = None) -> Value:
        """A constant; the graph contains it once something uses it."""
        array = np.asarray(array)
        if dtype is None:
            dtype = BY_NAME[str(array.dtype)]
        return Value("", dtype, None, array.astype(dtype.numpy, copy=False))

    def name_of(self, value: Value) -> str:
        """The name of a value; a constant becomes an initializer."""
        if value.name:
            return value.name
        array = value.array
        assert array is not None
        key = (array.dtype.str, str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.unique("constant")
            self.initializers[name] = TensorData(name, array)
        return self._constants[key]

    def initializer(self, name: str, array: np.ndarray, dtype: Dtype) -> Value:
        """A parameter or buffer, by its name."""
        name = self.unique(name)
        self.initializers[name] = TensorData(name, array)
        return Value(name, dtype)

    @contextmanager
    def coming_from(self, node: Source) -> Iterator[None]:
        """What is added within a `with` block comes from a node of a recording: of a twin's, from what its op does."""
        before = self.origin
        self.origin = texts(node) or before
        try:
            yield
        finally:
            self.origin = before

    # --- nodes -------------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> Dtype:
        """The dtype of the result."""
        dtype = self.results[0][0]
        assert dtype is not None
        return dtype

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The shape of the result."""
        shapes = self.results[0][1]
        assert shapes is not None
        return merged(shapes)

    def op(self, operator: str, *inputs: Any, outputs: int = 1, dtype: Dtype | None = None, **attributes: Any) -> Any:
        """Adds a node.

        Args:
            operator: the name of the operator, `domain::name` for one of another domain.
            inputs: values, None for those left out; lists of ints and arrays become constants.
            outputs: how many.
            dtype: of the outputs; that of the first input by default.
            attributes: attributes that are not None.
        """
        given = [self.as_value(v) for v in inputs]
        while given and given[-1] is None:
            given.pop()
        domain, _, name = operator.rpartition("::")
        if domain:
            self.domains.add(domain)
        made = [self.unique(name.lower()) for _ in range(outputs)]
        self.nodes.append(
            Node(
                name,
                ["" if v is None else self.name_of(v) for v in given],
                made,
                {key: value for key, value in attributes.items() if value is not None},
                domain,
                metadata=self.origin,
            )
        )
        dtype = dtype or next(v for v in given if v is not None).dtype
        values = [Value(name, dtype) for name in made]
        return values[0] if outputs == 1 else values

    def as_value(self, value: Any) -> Value | None:
        """A value, or a constant made of integers or an array."""
        if value is None or isinstance(value, Value):
            return value
        if isinstance(value, list | tuple):
            return self.ints(value)
        return self.constant(value)

    def cast(self, value: Value, dtype: Dtype) -> Value:
        """The value in another dtype."""
        if value.dtype is dtype:
            return value
        if value.array is not None:
            return Value("", dtype, None, value.array.astype(dtype.numpy))
        made = self.op("Cast", value, dtype=dtype, to=element_type(dtype))
        made.shapes = value.shapes
        return made

    def operand(self, value: Any, dtype: Dtype) -> Value:
        """A tensor or a number as a value of a dtype."""
        if isinstance(value, Value):
            return self.cast(value, dtype)
        if isinstance(value, Varying):
            return self._number(value, dtype)
        return self.constant(np.asarray(value).astype(dtype.numpy), dtype)

    def _number(self, value: Varying, dtype: Dtype) -> Value:
        if isinstance(value, Size):
            return self.cast(self.op("Squeeze", self.size(value), [0]), dtype)
        for source, axis, size in self._sources():
            for power in (1, -1, 0.5, -0.5):
                if np.allclose([s**power for s in map(float, size.values)], value.values, rtol=1e-12, atol=0):
                    found = self.cast(self.op("Squeeze", self._dim(source, axis), [0]), dtype)
                    return self.op("Pow", found, self.constant(power, dtype))
        raise SymbolicValueError(f"a number that is {value} does not follow from a dynamic dimension in a known way")

    # --- sizes -------------------------------------------------------------------------------------------------------

    def _sources(self) -> list[tuple[Value, int, Size]]:
        """The dimensions that a size may come from: those of the inputs, then of the tensors that the step takes."""
        found = []
        for value in (*self.inputs, *self.near):
            if value.shapes is not None and value.array is None:
                found += [(value, i, d) for i, d in enumerate(value.shape) if isinstance(d, Size)]
        return found

    def _dim(self, value: Value, axis: int) -> Value:
        key = (value.name, axis)
        if key not in self._sizes:
            self._sizes[key] = self.op("Shape", value, dtype=int64, start=axis, end=axis + 1)
        return self._sizes[key]

    def size(self, size: int | Varying) -> Value:
        """A size as a tensor of one integer.

        Raises: SymbolicValueError if it does not follow from a dynamic dimension.
        """
        if not isinstance(size, Varying):
            return self.constant([int(size)], int64)
        if size not in self._sizes:
            self._sizes[size] = self._size(size)  # type: ignore[index]
        return self._sizes[size]  # type: ignore[index]

    def _size(self, size: Varying) -> Value:
        sources = self._sources()
        for value, axis, source in sources:
            if source == size:
                return self._dim(value, axis)
        for value, axis, source in sources:
            found = linear(size, source)
            if found is not None:
                made = self._dim(value, axis)
                made = made if found[0] == 1 else self.op("Mul", made, [found[0]])
                return made if found[1] == 0 else self.op("Add", made, [found[1]])
        for (value, axis, source), (other, other_axis, second) in combinations(sources, 2):
            for operator, sign in (("Add", 1), ("Sub", -1)):
                rest = {t - a - sign * b for t, a, b in zip(size.values, source.values, second.values, strict=True)}
                if len(rest) == 1:
                    made = self.op(operator, self._dim(value, axis), self._dim(other, other_axis))
                    return made if rest == {0} else self.op("Add", made, [*rest])
        for count in (2, 3, 4):
            for chosen in combinations(sources, count):
                factor = product(size, [source for _, _, source in chosen])
                if factor is not None:
                    made = self._dim(*chosen[0][:2])
                    for value, axis, _ in chosen[1:]:
                        made = self.op("Mul", made, self._dim(value, axis))
                    return made if factor == 1 else self.op("Mul", made, [factor])
        for value, axis, source in sources:
            found = divided(size, source)
            if found is not None:
                made = self._dim(value, axis)
                made = made if found[1] == 0 else self.op("Add", made, [found[1]])
                return self.op("Div", made, [found[0]])
        raise SymbolicValueError(
            f"a size that is {size} at the sizes that were tried does not follow from a dynamic dimension in a known "
            "way"
        )

    def ints(self, values: Any) -> Value:
        """A tensor of integers, of which some may depend on dynamic dimensions."""
        if not any(isinstance(v, Varying) for v in values):
            return self.constant(np.array([int(v) for v in values], dtype=np.int64))
        return self.concat([self.size(v) for v in values])

    def concat(self, values: list[Value], axis: int = 0) -> Value:
        """Values one after the other."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    # --- shapes ------------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Any) -> Value:
        """The value in another shape."""
        shape = tuple(shape)
        if value.array is not None and not any(isinstance(d, Varying) for d in shape):
            return self.constant(value.array.reshape(shape), value.dtype)
        before = merged(value.shapes) if value.shapes is not None else ()
        if shape == before:
            return value
        source = value
        while source.reshaped_from is not None:
            source = source.reshaped_from
            if source.shapes is not None and merged(source.shapes) == shape:
                return source
        kept = shape
        if 0 not in shape:
            kept = tuple(0 if isinstance(d, Size) and before[i : i + 1] == (d,) else d for i, d in enumerate(shape))
            if sum(isinstance(d, Size) for d in kept) == 1:
                kept = tuple(-1 if isinstance(d, Size) else d for d in kept)
        made = self.op("Reshape", value, self.ints(kept), allowzero=1 if 0 in shape else None)
        made.reshaped_from = value
        return made

    def expand(self, value: Value, shape: Any) -> Value:
        """The value broadcast to a shape."""
        if value.array is not None and not any(isinstance(d, Varying) for d in shape):
            return self.constant(np.broadcast_to(value.array, tuple(shape)), value.dtype)
        return self.op("Expand", value, self.ints(shape))

    def transpose(self, value: Value, order: Any) -> Value:
        """The value with its dimensions in another order."""
        order = [int(d) for d in order]
        return value if order == sorted(order) else self.op("Transpose", value, perm=order)

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """The value with new dimensions of size 1."""
        return self.op("Unsqueeze", value, list(axes)) if axes else value

    def squeeze(self, value: Value, *axes: int) -> Value:
        """The value without dimensions of size 1."""
        return self.op("Squeeze", value, list(axes)) if axes else value
