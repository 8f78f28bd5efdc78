"""What an ONNX file says, as plain objects: nodes, tensors, a graph, a model. `protobuf.py` writes and reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorgrad.dtypes import dtype as Dtype
from tensorgrad.dtypes import from_numpy_dtype

# ONNX's numbers of element types.
ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
}  # fmt: skip
# Those that are read, too.
NAMES = {number: name for name, number in ELEMENT_TYPES.items()} | {
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
    21: "uint8", 22: "int8", 25: "uint8", 26: "int8",
}  # fmt: skip
NARROW = {21: 4, 22: 4, 25: 2, 26: 2}  # the bits of integers that are packed in files, and bytes here

# Operators that put the numbers of tensors elsewhere, and change none.
MOVES = frozenset((
    "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
))  # fmt: skip

# The version of the file format that came with a version of the operators.
IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}


def element_type(dtype: Dtype) -> int:
    """ONNX's number of a dtype.

    Raises: TypeError if ONNX has none.
    """
    name = dtype.name
    if name not in ELEMENT_TYPES:
        raise TypeError(f"onnx: there is no element type for {dtype}")
    return ELEMENT_TYPES[name]


@dataclass
class TensorData:
    """A tensor with its values: an initializer, or an attribute.

    Attributes:
        name: its name in the graph.
        array: the values; a function that returns them where they are only needed when they are written.
        narrow: the number of their type, if that is one of integers of a few bits.
    """

    name: str
    array: np.ndarray
    narrow: int = 0

    @property
    def element_type(self) -> int:
        return element_type(from_numpy_dtype(self.array.dtype))


@dataclass
class ValueInfo:
    """An input or output of a graph: dimensions are numbers, names, or None where nothing is known."""

    name: str
    element_type: int
    shape: tuple[int | str | None, ...] | None


@dataclass
class Node:
    """One operator. Attributes are ints, floats, strings, arrays, graphs, or lists of these.

    `metadata` says where it comes from (origins.py).
    """

    operator: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    name: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Graph:
    """Nodes in an order in which they can run, and what goes in and comes out."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    initializers: list[TensorData] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        """The names of the inputs that are not weights."""
        weights = {t.name for t in self.initializers}
        return [v.name for v in self.inputs if v.name not in weights]


@dataclass
class Model:
    """A file: a graph, and the versions of what it uses."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int
    producer_name: str = ""
    producer_version: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
