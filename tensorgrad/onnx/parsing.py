"""Reads ONNX's files: the messages of Protocol Buffers that `protobuf.py` writes, with all lengths checked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorgrad.dtypes import BY_NAME
from tensorgrad.onnx.errors import InvalidModelError
from tensorgrad.onnx.model import NAMES, Graph, Model, Node, TensorData, ValueInfo
from tensorgrad.onnx.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    FLOAT,
    FLOATS,
    GRAPH,
    INT,
    INTS,
    STRING,
    STRINGS,
    TENSOR,
    TYPE,
    VARINT,
)


def fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yields number, encoding and value of each field of a message.

    Raises: InvalidModelError if the bytes are not a message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, encoding = key >> 3, key & 7
        value: Any
        if encoding == VARINT:
            value, at = _varint(data, at)
        elif encoding == BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif encoding in (FIXED32, FIXED64):
            length = 4 if encoding == FIXED32 else 8
            value, at = data[at : at + length], at + length
        else:
            raise InvalidModelError(f"onnx: not a model: a field is encoded as {encoding}")
        if at > end:
            raise InvalidModelError("onnx: not a model: a field is longer than what contains it")
        if number == 0:
            raise InvalidModelError("onnx: not a model: a field has the number 0")
        yield number, encoding, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise InvalidModelError("onnx: not a model: an integer does not end")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


class Parts:
    """The fields of a message by number.

    Raises: InvalidModelError where a field is not what it should be.
    """

    def __init__(self, data: Any, what: str) -> None:
        self.what = what
        self.found: dict[int, list[tuple[int, Any]]] = {}
        if not isinstance(data, memoryview):
            raise InvalidModelError(f"onnx: not a model: {what} is a number")
        for number, encoding, value in fields(data):
            self.found.setdefault(number, []).append((encoding, value))

    def messages(self, number: int) -> list[memoryview]:
        """The values of a field that are messages, texts or bytes."""
        values = []
        for encoding, value in self.found.get(number, ()):
            if encoding != BYTES:
                raise InvalidModelError(f"onnx: not a model: field {number} of {self.what} is a number")
            values.append(value)
        return values

    def texts(self, number: int) -> list[str]:
        """Texts."""
        try:
            return [str(value, "utf-8") for value in self.messages(number)]
        except UnicodeDecodeError as error:
            raise InvalidModelError(f"onnx: not a model: a text of {self.what} is not UTF-8") from error

    def text(self, number: int) -> str:
        """The last text, or none."""
        return (self.texts(number) or [""])[-1]

    def integers(self, number: int) -> list[int]:
        """Integers, one by one or packed."""
        values: list[int] = []
        for encoding, value in self.found.get(number, ()):
            if encoding == VARINT:
                values.append(_signed(value))
            elif encoding == BYTES:
                at = 0
                while at < len(value):
                    one, at = _varint(value, at)
                    values.append(_signed(one))
            else:
                raise InvalidModelError(f"onnx: not a model: field {number} of {self.what} is not an integer")
        return values

    def integer(self, number: int, default: int = 0) -> int:
        """The last integer, or the default."""
        return (self.integers(number) or [default])[-1]

    def numbers(self, number: int, kind: str) -> np.ndarray:
        """Numbers of four or eight bytes, one by one or packed."""
        size = int(kind[-1])
        data = b"".join(bytes(value) for encoding, value in self.found.get(number, ()) if encoding != VARINT)
        if len(data) % size:
            raise InvalidModelError(f"onnx: not a model: field {number} of {self.what} ends in the middle of a number")
        return np.frombuffer(data, "<" + kind)


Stored = Callable[[dict[str, str]], Any]


def read_model(data: Any, stored: Stored) -> Model:
    """The model in a file's bytes. `stored` gives the bytes of tensors whose values are in another file.

    Raises: InvalidModelError if the bytes are not a model.
    """
    parts = Parts(memoryview(data), "the model")
    graphs = parts.messages(7)
    if not graphs:
        raise InvalidModelError("onnx: not a model: it has no graph")
    opsets = {}
    for message in parts.messages(8):
        opset = Parts(message, "an opset")
        opsets[opset.text(1)] = opset.integer(2)
    entries = [Parts(message, "an entry") for message in parts.messages(14)]
    return Model(
        _read_graph(graphs[-1], stored, 0), opsets, parts.integer(1), parts.text(2), parts.text(3),
        {entry.text(1): entry.text(2) for entry in entries},
    )  # fmt: skip


def _read_graph(data: memoryview, stored: Stored, depth: int) -> Graph:
    if depth > 8:
        raise InvalidModelError("onnx: graphs are nested more than 8 deep")
    parts = Parts(data, "a graph")
    return Graph(
        parts.text(2),
        [_read_node(message, stored, depth) for message in parts.messages(1)],
        [_read_tensor(message, stored) for message in parts.messages(5)],
        [_read_value_info(message) for message in parts.messages(11)],
        [_read_value_info(message) for message in parts.messages(12)],
    )


def _read_node(data: memoryview, stored: Stored, depth: int) -> Node:
    parts = Parts(data, "a node")
    attributes = dict(_read_attribute(message, stored, depth) for message in parts.messages(5))
    return Node(parts.text(4), parts.texts(1), parts.texts(2), attributes, parts.text(7), parts.text(3))


def _read_attribute(data: memoryview, stored: Stored, depth: int) -> tuple[str, Any]:
    parts = Parts(data, "an attribute")
    name, kind = parts.text(1), parts.integer(20)
    if kind == INT:
        return name, parts.integer(3)
    if kind == FLOAT:
        return name, float((*parts.numbers(2, "f4"), 0.0)[0])
    if kind == STRING:
        return name, parts.text(4)
    if kind == TENSOR:
        return name, _read_tensor((parts.messages(5) or [memoryview(b"")])[-1], stored).array
    if kind == GRAPH:
        return name, _read_graph((parts.messages(6) or [memoryview(b"")])[-1], stored, depth + 1)
    if kind == INTS:
        return name, parts.integers(8)
    if kind == FLOATS:
        return name, [float(v) for v in parts.numbers(7, "f4")]
    if kind == STRINGS:
        return name, parts.texts(9)
    if kind == TYPE:  # which no operator needs to know
        return name, None
    raise InvalidModelError(f"onnx: attribute {name}: values of type {kind} are not read")


# Where a tensor's values are, if they are not raw bytes: the field, how it is read, and for which element types.
_TYPED = {
    "float32": (4, "f4"), "float64": (10, "f8"), "int64": (7, ""), "uint64": (11, ""), "uint32": (11, ""),
    "complex64": (4, "f4"), "complex128": (10, "f8"),
}  # fmt: skip


def _read_tensor(data: memoryview, stored: Stored) -> TensorData:
    parts = Parts(data, "a tensor")
    name, shape, kind = parts.text(8), tuple(parts.integers(1)), parts.integer(2)
    if kind not in NAMES:
        raise InvalidModelError(f"onnx: tensor {name}: elements of type {kind} are not read")
    if any(size < 0 for size in shape) or len(shape) > 64:
        raise InvalidModelError(f"onnx: tensor {name} has the shape {list(shape)}")
    dtype = BY_NAME[NAMES[kind]].numpy
    count = 1
    for size in shape:
        count *= size
    given: Any
    if parts.integer(14) == 1:
        entries = [Parts(message, "an entry") for message in parts.messages(13)]
        given = stored({entry.text(1): entry.text(2) for entry in entries})
    elif 9 in parts.found:
        given = parts.messages(9)[-1]
    else:
        number, encoding = _TYPED.get(NAMES[kind], (5, ""))
        if encoding:
            given = parts.numbers(number, encoding).tobytes()
        else:
            values = np.array(parts.integers(number), dtype=np.int64)
            if NAMES[kind][:5] in ("float", "bfloa"):  # their bits
                given = values.astype(f"u{dtype.itemsize}").tobytes()
            else:
                given = values.astype(dtype).tobytes()
    if len(given) != count * dtype.itemsize:
        raise InvalidModelError(
            f"onnx: tensor {name} of shape {list(shape)} and type {NAMES[kind]} has {len(given)} bytes, "
            f"not {count * dtype.itemsize}"
        )
    array = np.frombuffer(given, dtype=np.uint8).view(dtype) if count else np.zeros(0, dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    return TensorData(name, array.reshape(shape))


def _read_value_info(data: memoryview) -> ValueInfo:
    parts = Parts(data, "a value")
    name = parts.text(1)
    for kind in parts.messages(2):
        for message in Parts(kind, "a type").messages(1):
            tensor = Parts(message, "a type")
            shape: tuple | None = None
            for dims in tensor.messages(2):
                shape = tuple(_read_dim(dim) for dim in Parts(dims, "a shape").messages(1))
            return ValueInfo(name, tensor.integer(1), shape)
    return ValueInfo(name, 0, None)


def _read_dim(data: memoryview) -> int | str | None:
    parts = Parts(data, "a dimension")
    return parts.integer(1) if 1 in parts.found else parts.text(2) or None
