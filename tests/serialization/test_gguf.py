"""GGUF files: formats against a slow reading of their description and the package gguf; damaged files are refused."""

import struct
import tracemalloc

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import gguf

NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13,
           "Q6_K": 14, "BF16": 30}  # fmt: skip
BLOCKS = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34),
          "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}  # fmt: skip


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(kind, packed):
    return struct.pack("<I", kind) + packed


def file_of(tensors, metadata=(), alignment=32, version=3):
    """The bytes of a file. Tensors: name -> (shape, number of the format, bytes); metadata: (name, value's bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(name) + packed for name, packed in metadata)
    data = b""
    for name, (shape, kind, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


def opened(content, tmp_path):
    path = tmp_path / "file.gguf"
    path.write_bytes(content)
    return gguf.load(path)


def blocks(name, count, seed=0):
    """Random blocks, whose scales are numbers of a usual size."""
    random = np.random.default_rng(seed)
    made = random.integers(0, 256, (count, BLOCKS[name][1]), np.uint8)
    places = {"Q6_K": [208], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0]}.get(name, [0, 2])
    for at in places:
        made[:, at : at + 2] = random.uniform(-2, 2, (count, 1)).astype("<f2").view(np.uint8)
    return made


def slowly(name, block):
    """The numbers of one block, one after another, in float64."""
    half = lambda at: float(np.frombuffer(block[at : at + 2], "<f2")[0])
    signed = lambda byte: byte - 256 if byte > 127 else byte
    nibble = lambda at, i, n: block[at + i % n] >> 4 if i >= n else block[at + i] & 15
    if name == "Q8_0":
        return [half(0) * signed(b) for b in block[2:]]
    if name in ("Q4_0", "Q4_1"):
        return [half(0) * (nibble(2, i, 16) - 8) if name == "Q4_0" else half(0) * nibble(4, i, 16) + half(2)
                for i in range(32)]  # fmt: skip
    if name in ("Q5_0", "Q5_1"):
        at = 2 if name == "Q5_0" else 4
        bits = int.from_bytes(block[at : at + 4], "little")
        found = [nibble(at + 4, i, 16) + 16 * (bits >> i & 1) for i in range(32)]
        return [half(0) * (q - 16) if name == "Q5_0" else half(0) * q + half(2) for q in found]
    made = []
    if name == "Q6_K":
        for i in range(256):
            part, within = divmod(i, 128)
            quarter, lane = divmod(within, 32)
            low = block[64 * part + lane + 32 * (quarter % 2)] >> (4 if quarter > 1 else 0) & 15
            q = low + 16 * (block[128 + 32 * part + lane] >> 2 * quarter & 3) - 32
            made.append(half(208) * signed(block[192 + i // 16]) * q)
        return made
    scales = block[4:16]
    for i in range(256):
        j = i // 32
        if j < 4:
            scale, least = scales[j] & 63, scales[j + 4] & 63
        else:
            scale = (scales[j + 4] & 15) + 16 * (scales[j - 4] >> 6)
            least = (scales[j + 4] >> 4) + 16 * (scales[j] >> 6)
        at = (16 if name == "Q4_K" else 48) + 32 * (j // 2) + i % 32
        q = block[at] >> 4 if j % 2 else block[at] & 15
        if name == "Q5_K":
            q += 16 * (block[16 + i % 32] >> j & 1)
        made.append(half(0) * scale * q - half(2) * least)
    return made


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_read_as_they_are_described(name, tmp_path):
    numbers = BLOCKS[name][0]
    content = blocks(name, 6)
    file = opened(file_of({"w": ((2, 3, numbers), NUMBERS[name], content.tobytes())}), tmp_path)
    found, expected = file["w"], np.array([slowly(name, block.tolist() and block.tobytes()) for block in content])
    assert found.dtype is torch.float32 and found.shape == (2, 3, numbers) and file.describe("w")[1] == name
    np.testing.assert_allclose(found.numpy().reshape(6, -1), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_read_as_the_package_gguf_reads_them(name, tmp_path):
    package = pytest.importorskip("gguf", reason="the package gguf is not installed: there is nothing to compare with")
    content = blocks(name, 40, seed=1)
    file = opened(file_of({"w": ((40, BLOCKS[name][0]), NUMBERS[name], content.tobytes())}), tmp_path)
    expected = package.quants.dequantize(content, package.GGMLQuantizationType[name])
    np.testing.assert_array_equal(file["w"].numpy(), expected)


def test_files_that_the_package_gguf_writes(tmp_path):
    package = pytest.importorskip("gguf", reason="the package gguf is not installed: there is nothing to compare with")
    writer, random = package.GGUFWriter(tmp_path / "w.gguf", "llama"), np.random.default_rng(0)
    writer.add_uint32("some.number", 7)
    writer.add_array("some.words", ["a", "ü"])
    writer.add_array("some.numbers", [1.5, 2.5])
    writer.add_bool("some.truth", True)
    x = random.standard_normal((4, 64)).astype(np.float32)
    writer.add_tensor("x", x)
    writer.add_tensor("half", x.astype(np.float16))
    for name in ("Q8_0", "Q4_0", "Q5_1"):
        kind = package.GGMLQuantizationType[name]
        writer.add_tensor(name, package.quants.quantize(x, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = gguf.load(tmp_path / "w.gguf")
    assert file.metadata["general.architecture"] == "llama" and file.metadata["some.number"] == 7
    assert file.metadata["some.words"] == ["a", "ü"] and file.metadata["some.numbers"] == [1.5, 2.5]
    assert file.metadata["some.truth"] is True and list(file) == ["x", "half", "Q8_0", "Q4_0", "Q5_1"]
    assert (file["x"].numpy() == x).all() and (file["half"].numpy() == x.astype(np.float16)).all()
    for name in ("Q8_0", "Q4_0", "Q5_1"):
        kind = package.GGMLQuantizationType[name]
        expected = package.quants.dequantize(package.quants.quantize(x, kind), kind)
        np.testing.assert_array_equal(file[name].numpy(), expected)


METADATA = (
    ("a.text", value(8, text("words"))), ("a.number", value(4, struct.pack("<I", 5))), ("a.truth", value(7, b"\1")),
    ("a.least", value(11, struct.pack("<q", -(2**63)))), ("a.float", value(12, struct.pack("<d", 0.25))),
    ("numbers", value(9, struct.pack("<IQ2h", 3, 2, -1, 300))),
    ("words", value(9, struct.pack("<IQ", 8, 2) + text("a") + text(""))),
    ("nested", value(9, struct.pack("<IQ", 9, 2) + struct.pack("<IQB", 0, 1, 9) + struct.pack("<IQ", 8, 0))),
)  # fmt: skip


def usual():
    half = np.array([0.5, -2.0, 65504.0], "<f2")
    return {
        "f": ((2, 2), 0, np.array([[1, 2], [3, 4]], "<f4").tobytes()),
        "h": ((3,), 1, half.tobytes()),
        "b": ((2,), 30, bytes([0x80, 0x3F, 0, 0xC0])),
        "q": ((1, 32), 8, blocks("Q8_0", 1).tobytes()),
        "k": ((256,), 14, blocks("Q6_K", 1).tobytes()),
    }


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 8])
def test_metadata_and_plain_numbers(version, alignment, tmp_path):
    more = (("general.alignment", value(4, struct.pack("<I", alignment))),)
    file = opened(file_of(usual(), METADATA + more, alignment, version), tmp_path)
    assert file.metadata == {
        "a.text": "words", "a.number": 5, "a.truth": True, "a.least": -(2**63), "a.float": 0.25,
        "numbers": [-1, 300], "words": ["a", ""], "nested": [[9], []], "general.alignment": alignment,
    }  # fmt: skip
    assert list(file) == ["f", "h", "b", "q", "k"] and len(file) == 5 and "5 tensors" in repr(file)
    assert file["f"].tolist() == [[1, 2], [3, 4]] and file["h"].tolist() == [0.5, -2, 65504]
    assert file["h"].dtype is torch.float16 and file["b"].dtype is torch.bfloat16 and file["b"].tolist() == [1, -2]
    file["f"].add_(1)  # a copy
    assert file["f"].tolist() == [[1, 2], [3, 4]] and "z" not in file


def test_tensors_are_read_when_they_are_asked_for(tmp_path):
    content = file_of({"a": ((1 << 20,), 8, bytes((1 << 15) * 34)), "b": ((4,), 0, bytes(16))})
    (tmp_path / "w.gguf").write_bytes(content)
    tracemalloc.start()
    try:
        file = gguf.load(tmp_path / "w.gguf")
        file["b"]
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert file["a"].shape == (1 << 20,)


def one(shape=(2,), kind=0, content=bytes(8), name="w"):
    return {name: (shape, kind, content)}


HUGE = struct.pack("<Q", 2**62)
DAMAGED = {
    "empty": b"",
    "another file": b"PK\3\4" + bytes(40),
    "only its name": b"GGUF",
    "version 1": file_of(one(), version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "many tensors": b"GGUF" + struct.pack("<I", 3) + HUGE + bytes(8),
    "many values": b"GGUF" + struct.pack("<IQ", 3, 0) + HUGE,
    "a long name": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + HUGE + bytes(40),
    "a long text": file_of({}, [("a", value(8, HUGE + bytes(40)))]),
    "not UTF-8": file_of({}, [("a", value(8, struct.pack("<Q", 2) + b"\xff\xfe"))]),
    "a long array": file_of({}, [("a", value(9, struct.pack("<I", 0) + HUGE))]),
    "a long array of texts": file_of({}, [("a", value(9, struct.pack("<I", 8) + HUGE))]),
    "an unknown value": file_of({}, [("a", value(13, bytes(40)))]),
    "arrays in arrays in arrays": file_of({}, [("a", value(9, struct.pack("<IQ", 9, 1) * 2000))]),
    "a name twice": file_of({}, [("a", value(0, b"1"))] * 2),
    "five dimensions": file_of(one((1, 1, 1, 1, 1))),
    "many dimensions": file_of({}).replace(struct.pack("<QQ", 0, 0), struct.pack("<QQ", 1, 0), 1)
    + text("w") + struct.pack("<I", 2**32 - 1) + bytes(64),
    "an unknown format": file_of(one(kind=9)),
    "more than it has": file_of(one((1000,))),
    "a product beyond 64 bits": file_of(one((2**32, 2**32))),
    "an empty tensor": file_of(one((2**62, 0))),
    "half a block": file_of(one((33,), 8, bytes(68))),
    "an alignment of 0": file_of(one(), [("general.alignment", value(4, bytes(4)))]),
    "an alignment of words": file_of(one(), [("general.alignment", value(8, text("a")))]),
    "a start between": file_of(one(name="w") | one(name="v"), alignment=16),
    "a short end": file_of(one((64,), 0, bytes(256)))[:-1],
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name, tmp_path):
    with pytest.raises(gguf.GGUFError, match=r"^GGUF: "):
        opened(DAMAGED[name], tmp_path)


def test_no_change_of_a_file_does_more_than_raise_the_one_error():
    """2,000 files with some bytes changed, and every shorter file, are read or refused, with little memory."""
    content, random, refused = file_of(usual(), METADATA), np.random.default_rng(0), 0
    length = content.index(b"k" + struct.pack("<I", 1)) + 30
    mutants = [content[:n] for n in range(0, len(content), 3)]
    for n in range(2000):
        made = bytearray(content)
        for at in random.integers(4, length if n % 2 else len(content), 1 + n % 4):
            made[at] = random.choice([0, 1, 8, 9, 0x7F, 0x80, 0xFF, int(random.integers(256))])
        mutants.append(bytes(made))
    tracemalloc.start()
    try:
        for mutant in mutants:
            try:
                for tensor in gguf.GGUFFile(mutant).values():
                    assert tensor.numel() <= 8 * len(mutant)
            except gguf.GGUFError:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 + sum(map(len, mutants))
    finally:
        tracemalloc.stop()
    assert 500 < refused < len(mutants)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        gguf.load(tmp_path / "none.gguf")
