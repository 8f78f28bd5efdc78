"""Reads GGUF files: metadata, and tensors that are decoded when they are asked for.

    file = torch.gguf.load("model.gguf")
    file.metadata["general.architecture"], file["token_embd.weight"]

The file is mapped, so opening it reads only its head. Nothing in it is executed; every offset, size and count is
checked before it is used. The layout is that of the ggml project.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorgrad import dtypes
from tensorgrad.tensor import Tensor, wrap

__all__ = ["GGUFError", "GGUFFile", "load"]

_MOST_DIMENSIONS = 4
_MOST_NESTED = 4  # arrays in arrays
_LEAST_METADATA, _LEAST_TENSOR = 13, 28  # bytes that an entry takes: with an empty name, in no dimension
_NUMBERS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


class GGUFError(RuntimeError):
    """A file that is damaged, not GGUF, or of a kind that cannot be read."""


# --- numbers in blocks: a function is given the bytes of blocks, one a row, and returns their numbers in float32 ------


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at a byte of each block."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """The lower halves of bytes, then the upper ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(blocks: np.ndarray, at: int) -> np.ndarray:
    """32 bits, shifted to where the fifth bit of a number is."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << 4


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return blocks[:, 2:].view(np.int8) * _half(blocks, 0)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return (_nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    return _nibbles(blocks[:, 4:]) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    return ((_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).astype(np.float32) - 16) * _half(blocks, 0)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    return (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)) * _half(blocks, 0) + _half(blocks, 2)


def _scales_and_minima(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each eighth of a K block, what its numbers are multiplied by, and what is then subtracted.

    Both are six bits: those of the first four eighths lie in a byte each; those of the others are a nibble, whose two
    upper bits are the upper bits of the former.
    """
    first, second, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=1)
    return (_half(blocks, 0) * scales)[..., None], (_half(blocks, 2) * minima)[..., None]


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    scales, minima = _scales_and_minima(blocks)
    numbers = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (scales * numbers - minima).reshape(-1, 256)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    scales, minima = _scales_and_minima(blocks)
    eighths = np.arange(8, dtype=np.uint8).reshape(8, 1)
    upper = (blocks[:, None, 16:48] >> eighths & 1) << 4
    numbers = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | upper
    return (scales * numbers - minima).reshape(-1, 256)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    lower = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 8, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(4, 1)
    upper = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3).reshape(-1, 8, 32)
    numbers = ((lower | upper << 4).astype(np.float32) - 32).reshape(-1, 16, 16)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return (scales[..., None] * numbers).reshape(-1, 256)


class _Format(NamedTuple):
    name: str
    numbers: int  # in a block
    nbytes: int  # of a block
    decode: Callable[[np.ndarray], np.ndarray] | None = None  # None: the bytes are an array of the dtype
    dtype: dtypes.dtype = dtypes.float32


_FORMATS = {
    0: _Format("F32", 1, 4),
    1: _Format("F16", 1, 2, dtype=dtypes.float16),
    2: _Format("Q4_0", 32, 18, _q4_0),
    3: _Format("Q4_1", 32, 20, _q4_1),
    6: _Format("Q5_0", 32, 22, _q5_0),
    7: _Format("Q5_1", 32, 24, _q5_1),
    8: _Format("Q8_0", 32, 34, _q8_0),
    12: _Format("Q4_K", 256, 144, _q4_k),
    13: _Format("Q5_K", 256, 176, _q5_k),
    14: _Format("Q6_K", 256, 210, _q6_k),
    30: _Format("BF16", 1, 2, dtype=dtypes.bfloat16),
}


# --- the head of a file ----------------------------------------------------------------------------------------------


class _Head:
    """Reads from the start of a file, and refuses to go past its end."""

    def __init__(self, content: memoryview):
        self.content, self.at = content, 0

    def take(self, size: int) -> memoryview:
        left = len(self.content) - self.at
        if size > left:
            raise GGUFError(f"GGUF: the file is damaged: {size} bytes are to be read at {self.at}, but {left} are left")
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        return struct.unpack(kind, self.take(struct.calcsize(kind)))[0]

    def count(self, least: int, of: str) -> int:
        """A number of things that each take at least so many bytes."""
        count, left = self.number("<Q"), len(self.content) - self.at
        if count * least > left:
            raise GGUFError(f"GGUF: the file is damaged: it names {count} {of}, but has only {left} bytes more")
        return count

    def text(self) -> str:
        start = self.at
        try:
            return bytes(self.take(self.number("<Q"))).decode()
        except UnicodeDecodeError:
            raise GGUFError(f"GGUF: the file is damaged: the text at {start} is not UTF-8") from None

    def value(self, depth: int = 0) -> Any:
        return self._of_kind(self.number("<I"), depth)

    def _of_kind(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth == _MOST_NESTED:
            raise GGUFError(f"GGUF: the file is damaged: a value at {self.at} has the unknown or too deep type {kind}")
        inner = self.number("<I")
        if inner in _NUMBERS:
            size = struct.calcsize(_NUMBERS[inner])
            count = self.count(size, "numbers")
            return [v for (v,) in struct.iter_unpack(_NUMBERS[inner], self.take(count * size))]
        count = self.count(8, "values")
        return [self._of_kind(inner, depth + 1) for _ in range(count)]


class _Entry(NamedTuple):
    shape: tuple[int, ...]
    format: _Format
    start: int
    nbytes: int


def _entry(head: _Head, name: str) -> tuple[_Entry, int]:
    """What the head says of one tensor; its start is counted from where tensors begin."""
    count = head.number("<I")
    if count > _MOST_DIMENSIONS:
        raise GGUFError(f"GGUF: the tensor {name!r} has {count} dimensions, at most {_MOST_DIMENSIONS} were expected")
    shape = tuple(head.number("<Q") for _ in range(count))[::-1]  # the file names the last one first
    if 0 in shape:
        raise GGUFError(f"GGUF: the file is damaged: the tensor {name!r} of {shape} is empty")
    number, start = head.number("<I"), head.number("<Q")
    found = _FORMATS.get(number)
    if found is None:
        known = ", ".join(f.name for f in _FORMATS.values())
        raise GGUFError(f"GGUF: the tensor {name!r} is of type {number}; these can be read: {known}")
    numbers = math.prod(shape)
    if (shape[-1] if shape else 1) % found.numbers:
        raise GGUFError(
            f"GGUF: the tensor {name!r} of {shape} is not whole blocks of {found.name}, {found.numbers} each"
        )
    return _Entry(shape, found, start, numbers // found.numbers * found.nbytes), start


class GGUFFile(Mapping[str, Tensor]):
    """The metadata of a file, a dict; and its tensors by name, each decoded when it is asked for.

    Floating-point tensors are copies in their own dtype, those in blocks become float32.
    """

    metadata: dict[str, Any]

    def __init__(self, content: Any):
        self._content = memoryview(content)
        head = _Head(self._content)
        if bytes(self._content[:4]) != b"GGUF":
            raise GGUFError(f"GGUF: the file begins with {bytes(self._content[:4])!r}, not with b'GGUF'")
        head.at = 4
        version = head.number("<I")
        if version not in (2, 3):
            raise GGUFError(f"GGUF: version {version} is not known, only 2 and 3 of little-endian files are")
        tensors = head.count(_LEAST_TENSOR - 4, "tensors")
        values = head.count(_LEAST_METADATA, "values")
        self.metadata = {}
        for _ in range(values):
            name = head.text()
            if name in self.metadata:
                raise GGUFError(f"GGUF: the file is damaged: {name!r} is named twice")
            self.metadata[name] = head.value()
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment > 1 << 20:
            raise GGUFError(f"GGUF: the file is damaged: tensors are aligned to {alignment!r}")
        self._entries: dict[str, _Entry] = {}
        for _ in range(tensors):
            name = head.text()
            if name in self._entries:
                raise GGUFError(f"GGUF: the file is damaged: the tensor {name!r} is named twice")
            self._entries[name], start = _entry(head, name)
            if start % alignment:
                raise GGUFError(f"GGUF: the file is damaged: the tensor {name!r} is not aligned to {alignment}")
        begin = -(-head.at // alignment) * alignment
        for name, entry in self._entries.items():
            if begin + entry.start + entry.nbytes > len(self._content):
                raise GGUFError(f"GGUF: the file is damaged: the tensor {name!r} of {entry.shape} ends after the file")
            self._entries[name] = entry._replace(start=begin + entry.start)

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entries[name]
        data = np.frombuffer(self._content, np.uint8, entry.nbytes, entry.start)
        if entry.format.decode is None:
            return wrap(data.copy().view(entry.format.dtype.numpy).reshape(entry.shape))
        with np.errstate(all="ignore"):  # a damaged scale may be infinite
            made = entry.format.decode(data.reshape(-1, entry.format.nbytes))
        return wrap(made.reshape(entry.shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def describe(self, name: str) -> tuple[tuple[int, ...], str]:
        """Returns the shape of a tensor and the name of its format, without decoding it."""
        return self._entries[name].shape, self._entries[name].format.name

    def __repr__(self) -> str:
        return f"GGUFFile({len(self)} tensors, {len(self.metadata)} values of metadata)"


def load(file: str | os.PathLike) -> GGUFFile:
    """Opens a GGUF file: `load(file).metadata`, and `load(file)[name]` for its tensors.

    F32, F16 and BF16 keep their dtype; Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K become float32.

    Raises:
        GGUFError: If the file is damaged, or contains what cannot be read.
        OSError: If it cannot be opened.
    """
    with open(file, "rb") as opened:
        if not os.fstat(opened.fileno()).st_size:
            raise GGUFError("GGUF: the file is empty")
        return GGUFFile(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
