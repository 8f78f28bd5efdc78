"""Writes and reads ONNX's files: a dozen messages of Protocol Buffers.

A message is a sequence of fields; a field is a key (its number, and how its value is encoded) and a value: an integer
of varying length, four or eight bytes, or a length and so many bytes. Numbers of fields are those of `onnx.proto`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorgrad.dtypes import BY_NAME
from tensorgrad.onnx.errors import InvalidModelError
from tensorgrad.onnx.model import NAMES, Graph, Model, Node, TensorData, ValueInfo

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGEST_MESSAGE = 2**31 - 1  # Protocol Buffers' limit: beyond it, values go into a file of their own

# AttributeProto.type
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


# --- writing --------------------------------------------------------------------------------------------------------


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
    kind, out = Message(), Message()
    kind.message(1, tensor)
    out.bytes(1, value.name)
    out.message(2, kind)
    return out


# --- reading --------------------------------------------------------------------------------------------------------


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
            if NAMES[kind] in ("float16", "bfloat16"):  # their bits
                given = values.astype(np.uint16).tobytes()
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
