"""Writes ONNX's files: a dozen messages of Protocol Buffers.

A message is a sequence of fields; a field is a key (its number, and how its value is encoded) and a value: an integer
of varying length, four or eight bytes, or a length and so many bytes. Numbers of fields are those of `onnx.proto`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.onnx.model import Graph, Model, Node, TensorData, ValueInfo

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGEST_MESSAGE = 2**31 - 1  # Protocol Buffers' limit: beyond it, values go into a file of their own

# AttributeProto.type
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TYPE = 1, 2, 3, 4, 5, 6, 7, 8, 13


def varint(value: int) -> bytes:
    """An integer in groups of seven bits, the lowest first; negative ones as 64-bit numbers.

    >>> from tensorgrad.onnx.protobuf import varint
    >>> varint(300)
    b'\\xac\\x02'
    """
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Message:
    """A message that is being written, in parts: values of tensors are not copied before the file is written."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.size = 0

    def add(self, part: Any) -> None:
        """Adds bytes."""
        self.parts.append(part)
        self.size += len(part)

    def integer(self, number: int, value: int) -> None:
        """Adds an integer."""
        self.add(varint(number << 3 | VARINT) + varint(value))

    def real(self, number: int, value: float) -> None:
        """Adds a float32."""
        self.add(varint(number << 3 | FIXED32) + struct.pack("<f", value))

    def bytes(self, number: int, value: Any) -> None:
        """Adds bytes, or a text."""
        value = value.encode() if isinstance(value, str) else value
        self.add(varint(number << 3 | BYTES) + varint(len(value)))
        self.add(value)

    def message(self, number: int, value: Message) -> None:
        """Adds a message."""
        self.add(varint(number << 3 | BYTES) + varint(value.size))
        self.parts += value.parts
        self.size += value.size


External = Callable[[TensorData], "tuple[str, int, int] | None"]


def model_message(model: Model, external: External = lambda tensor: None) -> Message:
    """A model as a message. `external` says where a tensor's values are (file, offset, length) if not in it."""
    out = Message()
    out.integer(1, model.ir_version)
    out.bytes(2, model.producer_name)
    out.bytes(3, model.producer_version)
    out.message(7, _graph(model.graph, external))
    for domain, version in model.opsets.items():
        opset = Message()
        opset.bytes(1, domain)
        opset.integer(2, version)
        out.message(8, opset)
    for key, value in model.metadata.items():
        out.message(14, _entry(key, value))
    return out


def _entry(key: str, value: str) -> Message:
    out = Message()
    out.bytes(1, key)
    out.bytes(2, value)
    return out


def _graph(graph: Graph, external: External) -> Message:
    out = Message()
    for node in graph.nodes:
        out.message(1, _node(node, external))
    out.bytes(2, graph.name)
    for tensor in graph.initializers:
        out.message(5, _tensor(tensor, external(tensor)))
    for number, values in ((11, graph.inputs), (12, graph.outputs)):
        for value in values:
            out.message(number, _value_info(value))
    return out


def _node(node: Node, external: External) -> Message:
    out = Message()
    for name in node.inputs:
        out.bytes(1, name)
    for name in node.outputs:
        out.bytes(2, name)
    if node.name:
        out.bytes(3, node.name)
    out.bytes(4, node.operator)
    for name, value in node.attributes.items():
        out.message(5, _attribute(name, value, external))
    if node.domain:
        out.bytes(7, node.domain)
    for key, text in node.metadata.items():
        out.message(9, _entry(key, text))
    return out


def _attribute(name: str, value: Any, external: External) -> Message:
    out = Message()
    out.bytes(1, name)
    if isinstance(value, bool | int | np.integer):
        out.integer(3, int(value))
        kind = INT
    elif isinstance(value, float):
        out.real(2, value)
        kind = FLOAT
    elif isinstance(value, str | bytes):
        out.bytes(4, value)
        kind = STRING
    elif isinstance(value, np.ndarray):
        out.message(5, _tensor(TensorData("", value), None))
        kind = TENSOR
    elif isinstance(value, Graph):
        out.message(6, _graph(value, external))
        kind = GRAPH
    elif isinstance(value, list | tuple):
        if all(isinstance(v, bool | int | np.integer) for v in value):
            kind = INTS
            for v in value:
                out.integer(8, int(v))
        elif all(isinstance(v, int | float) for v in value):
            kind = FLOATS
            for v in value:
                out.real(7, v)
        elif all(isinstance(v, str) for v in value):
            kind = STRINGS
            for v in value:
                out.bytes(9, v)
        else:
            raise TypeError(f"onnx: attribute {name}: a list of {type(value[0]).__name__} cannot be written")
    else:
        raise TypeError(f"onnx: attribute {name}: a value of type {type(value).__name__} cannot be written")
    out.integer(20, kind)
    return out


def _tensor(tensor: TensorData, place: tuple[str, int, int] | None) -> Message:
    out = Message()
    for size in tensor.array.shape:
        out.integer(1, size)
    out.integer(2, tensor.element_type)
    if tensor.name:
        out.bytes(8, tensor.name)
    if place is None:
        out.bytes(9, raw(tensor.array))
    else:
        for key, value in zip(("location", "offset", "length"), place, strict=True):
            out.message(13, _entry(key, str(value)))
        out.integer(14, 1)  # EXTERNAL
    return out


def raw(array: np.ndarray) -> memoryview:
    """The bytes of an array in ONNX's order: row by row, little-endian."""
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.byteswap()
    return array.reshape(-1).view(np.uint8).data


def _value_info(value: ValueInfo) -> Message:
    tensor = Message()
    tensor.integer(1, value.element_type)
    if value.shape is not None:
        shape = Message()
        for size in value.shape:
            dim = Message()
            if isinstance(size, int):
                dim.integer(1, size)
            elif size is not None:
                dim.bytes(2, size)
            shape.message(1, dim)
        tensor.message(2, shape)
    out = Message()
    out.bytes(1, value.name)
    if value.element_type:  # otherwise nothing is known of it
        kind = Message()
        kind.message(1, tensor)
        out.message(2, kind)
    return out
