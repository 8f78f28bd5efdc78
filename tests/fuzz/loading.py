"""Damaged and malicious files for `torch.load` and the reader of safetensors.

    python -m tests.fuzz.loading --seconds 60                 different files every time; the seed is printed
    python -m tests.fuzz.loading --seed 7 --cases 1           repeats one file
    python -m tests.fuzz.loading --seed 7 --write FILE        writes the file itself

A file must either load, or be rejected with an UnpicklingError or a RuntimeError. Loading may use at most
`memory(length)` bytes and `seconds(length)` of processor time, must not execute anything, and must return tensors that
are within their storages. Half of the files are real ones (written here, and by torch if it is installed) that are then
damaged: bytes, pickle instructions, archive entries, headers. The others are pickles generated from a grammar:
containers that contain each other, every function that a file may name with unexpected arguments, bombs of all kinds.
"""

from __future__ import annotations

import argparse
import atexit
import codecs
import collections
import contextlib
import faulthandler
import io
import itertools
import json
import os
import pickle
import pickletools
import random
import re
import secrets
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tensorgrad as tg
from tensorgrad.serialization import archive, legacy
from tensorgrad.serialization.unpickler import INSTRUCTIONS, NAMES

CLEAN = (pickle.UnpicklingError, RuntimeError)
PATIENCE = 120  # seconds that a worker may take
MB = 1 << 20


def memory(length: int) -> int:
    """Returns how many bytes loading a file may use: 4 times its size plus 16 MB. The 16 MB cover values of up to
    160 kB; longer descriptions may use 48 bytes for each of their own, which Python needs for some valid files.
    """
    return 4 * length + 16 * MB + 48 * max(0, length - 160 * 1024)


def seconds(length: int) -> float:
    """Returns how much processor time loading a file may use."""
    return 1.0 + length / MB


# --- real files ------------------------------------------------------------------------------------------------------


def contents(lib: Any) -> list:
    """Returns values like those that programs save."""
    base = lib.arange(24.0)
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4))
    adam = lib.optim.Adam(model.parameters())
    model(lib.ones(2, 3)).sum().backward()
    adam.step()
    kinds = ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float64", "complex64")
    marked = lib.ones(2)
    marked.mine = 3
    return [
        {"model": model.state_dict(), "optimizer": adam.state_dict(), "epoch": 1},
        {"views": [base, base[3:7], base.reshape(4, 6).t(), base[:0]], "dtypes": [lib.ones(2, dtype=getattr(lib, k)) for k in kinds]},
        {"plain": [1, -(2**70), 2.5, True, None, "text ü", b"bytes\xff", 3 + 4j, (1, (2, 3)), {1, 2}], 7: bytearray(b"xyz"),
         "ordered": collections.OrderedDict(b=1, a=lib.zeros(1)), "counter": collections.Counter("aab"),
         "kinds": [lib.float16, lib.device("cpu"), lib.Size([2, 3])]},
        [lib.nn.Parameter(lib.ones(2, 2)), lib.empty(2, 3, device="meta"), marked, lib.ones(3, dtype=lib.complex64).conj()],
        list(base.unbind()),
    ]  # fmt: skip


@cache
def corpus(library: str) -> tuple[bytes, ...]:
    """Returns real files of a library, in all its formats; none if it is not installed."""
    if library == "torch":
        try:
            import torch as lib
        except ImportError:
            return ()
    else:
        lib = tg
    lib.manual_seed(0)
    files = []
    for value in contents(lib):
        for options in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}):
            file = io.BytesIO()
            lib.save(value, file, **options)
            data = file.getvalue()
            if len(options) and "pickle_protocol" not in options:  # torch identifies storages by address
                keys = sorted(set(re.findall(rb"(?<=[^\d])\d{8,16}(?=[^\d])", data)))
                for i, key in enumerate(keys):
                    data = data.replace(key, b"%0*d" % (len(key), i))
            files.append(data)
    return tuple(files)


def real(rng: random.Random) -> bytes:
    """Returns one of the real files."""
    return rng.choice(corpus(rng.choice(("tensorgrad", "torch"))) or corpus("tensorgrad"))


# --- damage ----------------------------------------------------------------------------------------------------------

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Damages some bytes: changed, missing, duplicated, moved, or replaced by very large numbers."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, n = rng.randrange(len(content) + 1), rng.choice((1, 2, 4, 8, 30, 200))
        other = rng.randrange(len(content) + 1)
        way = rng.randrange(8)
        if way == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif way == 1 and at < len(content):
            content[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            del content[at : at + n]
        elif way == 3:
            content[at:at] = content[other : other + n]
        elif way == 4:
            content[at : at + n] = content[other : other + n]
        elif way == 5:
            size = rng.choice((1, 2, 4, 8))
            content[at : at + size] = (rng.choice(EXTREMES) % 256**size).to_bytes(size, rng.choice(("little", "big")))
        elif way == 6:
            content[at:at] = rng.randbytes(n)
        elif rng.random() < 0.2:
            del content[at:]
    return bytes(content)


def instructions(data: bytes) -> list[bytes]:
    """Splits a pickle into instructions; what follows its end is one more."""
    starts = [position for _, _, position in pickletools.genops(data)]
    parts = [data[a:b] for a, b in itertools.pairwise([*starts, starts[-1] + 1])]
    return [*parts, data[starts[-1] + 1 :]]


def reordered(rng: random.Random, data: bytes) -> bytes:
    """Returns a pickle with instructions removed, duplicated, swapped, or taken from the grammar."""
    parts = instructions(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        a, b = rng.randrange(len(parts)), rng.randrange(len(parts))
        way = rng.randrange(6)
        if way == 0 and len(parts) > 1:
            del parts[a]
        elif way == 1:
            parts.insert(a, parts[b])
        elif way == 2:
            parts[a], parts[b] = parts[b], parts[a]
        elif way == 3:
            parts.insert(a, scalar(rng))
        elif way == 4:
            parts[a] = scalar(rng)
        else:
            parts.insert(a, rng.choice([code.encode("latin1") for code in INSTRUCTIONS]))
    return b"".join(parts)


def damaged_real(rng: random.Random) -> bytes:
    """Returns a real file with damaged bytes."""
    return damaged(rng, real(rng))


def damaged_entries(rng: random.Random) -> bytes:
    """Returns a real archive with damaged entries and correct checksums."""
    data = real(rng)
    if data[:2] != b"PK":
        return b"".join(reordered(rng, part) for part in [data]) if rng.random() < 0.9 else damaged(rng, data)
    file = io.BytesIO()
    writer = archive.Writer(file, "archive")
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        names = old.namelist()
        chosen = rng.choice(names) if rng.random() < 0.4 else next(n for n in names if n.endswith("/data.pkl"))
        for name in names:
            content, short = old.read(name), name.partition("/")[2]
            if name == chosen:
                change = reordered if short == "data.pkl" and rng.random() < 0.7 else damaged
                content = change(rng, content)
                if rng.random() < 0.1:
                    short = rng.choice(("data/0", "data.pkl", "", "../x", "byteorder", "constants.pkl", "data/9"))
            if short != ".data/serialization_id":
                with warnings.catch_warnings():  # about duplicate names
                    warnings.simplefilter("ignore")
                    writer.add(short, content)
    writer.close()
    return file.getvalue()


def damaged_table(rng: random.Random) -> bytes:
    """Returns a real archive with changed numbers in its table of contents."""
    data = bytearray(real(rng))
    places = [m.start() for m in re.finditer(rb"PK(?=\x01\x02|\x05\x06|\x06\x06|\x06\x07|\x03\x04)", data)]
    if not places:
        return damaged(rng, bytes(data))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice(places) + rng.randrange(2, 56)
        size = rng.choice((1, 2, 4, 8))
        data[at : at + size] = (rng.choice((*EXTREMES, rng.randrange(len(data)))) % 256**size).to_bytes(size, "little")
    return bytes(data)


def tar(rng: random.Random) -> bytes:
    """Returns an archive in the format of PyTorch's first year, damaged or not."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as made:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            content = pickle.dumps({"protocol_version": 1000, "little_endian": True}) + rng.randbytes(
                rng.randrange(900)
            )
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return file.getvalue() if rng.random() < 0.2 else damaged(rng, file.getvalue())


def npz(rng: random.Random) -> bytes:
    """Returns a NumPy archive, which is a zip file but not a checkpoint."""
    file, method = io.BytesIO(), rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", method) as made:
        for name in ("data.npy", rng.choice(("data.pkl", "a/data.pkl", "b.npy"))):
            content = io.BytesIO()
            np.save(content, np.arange(rng.randrange(1, 5000)))
            made.writestr(zipfile.ZipInfo(name), content.getvalue(), method)
    return file.getvalue() if rng.random() < 0.2 else damaged(rng, file.getvalue())


# --- pickles from a grammar ------------------------------------------------------------------------------------------


def number(rng: random.Random) -> int:
    """Returns an integer, often close to a limit."""
    return rng.choice((0, 1, 2, 3, 4, -1, 255, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 2**70, 10**300,
                       1 << rng.randrange(13_000), rng.randrange(100)))  # fmt: skip


def integer(n: int) -> bytes:
    """Returns the instruction for an integer."""
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    size = n.bit_length() // 8 + 1
    head = b"\x8a" + bytes([size]) if size < 256 else b"\x8b" + struct.pack("<I", size)
    return head + n.to_bytes(size, "little", signed=True)


def text(value: str | bytes) -> bytes:
    """Returns the instruction for a string."""
    encoded = value if isinstance(value, bytes) else value.encode()
    return (b"B" if isinstance(value, bytes) else b"X") + struct.pack("<I", len(encoded)) + encoded


def scalar(rng: random.Random) -> bytes:
    """Returns the instruction for a value that is not a container."""
    n = rng.choice((0, 1, 3, 30, 3000))
    return rng.choice((
        lambda: b"N", lambda: b"\x88", lambda: b"\x89", lambda: integer(number(rng)), lambda: integer(number(rng)),
        lambda: b"G" + struct.pack(">d", rng.choice((0.0, 1.5, float("inf"), float("nan"), 1e300))),
        lambda: b"F" + b"9" * n + b"\n", lambda: b"I" + b"7" * n + b"\n", lambda: b"V" + b"\\u1234a" * n + b"\n",
        lambda: text("a" * n), lambda: text("\U0001f600" + "a" * n), lambda: text(bytes(n)), lambda: text(WORDS[rng.randrange(len(WORDS))]),
        lambda: b"U\x02\xff\xfe", lambda: b"\x96" + struct.pack("<Q", n) + bytes(n), lambda: name(rng),
    ))()  # fmt: skip


WORDS = ("cpu", "cuda:0", "meta", "cpu:²", "cuda:99999999999999999999", "storage", "0", "1", "torch.strided", "strided", "utf-8",
         "rot13", "idna", "conj", "neg", "__class__", "_storage", "__dict__", "backward", "a", "layout", "torch.layout")  # fmt: skip


def name(rng: random.Random) -> bytes:
    """Returns the instruction for a name, nearly always one that files may use."""
    if rng.random() < 0.02:
        return rng.choice(
            (
                b"cos\nsystem\n",
                b"cbuiltins\neval\n",
                b"ctorch\nload\n",
                b"c\n\n",
                b"c\xff\xfe\nx\n",
                b"ca\nb" + b"c" * 5000 + b"\n",
            )
        )
    full = rng.choice(sorted(NAMES) if rng.random() < 0.5 else CALLABLE)
    return b"c" + full.rpartition(".")[0].encode() + b"\n" + full.rpartition(".")[2].encode() + b"\n"


CALLABLE = sorted(n for n in NAMES if "_rebuild" in n or "layout" in n or n.partition(".")[0] in ("collections", "builtins", "_codecs")
                  or n in ("torch.Size", "torch.device", "torch.Tensor"))  # fmt: skip


def named(full: str) -> bytes:
    module, _, last = full.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def storage(kind: str = "FloatStorage", key: str = "0", elements: int = 4, old: bool = False) -> bytes:
    """Returns a reference to a storage."""
    return (
        b"("
        + text("storage")
        + named(f"torch.{kind}")
        + text(key)
        + text("cpu")
        + integer(elements)
        + b"N" * old
        + b"tQ"
    )


def tuple_of(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


TENSOR = "torch._utils._rebuild_tensor_v2"


def a_tensor(size=(4,), stride=(1,), metadata: bytes = b"", kind="FloatStorage", elements=4, old=False) -> bytes:
    """Returns the instructions for a tensor."""
    numbers = [tuple_of(*map(integer, n)) for n in (size, stride)]
    parts = storage(kind, "0", elements, old), b"K\x00", *numbers, b"\x89", named("collections.OrderedDict"), b")R"
    return named(TENSOR) + tuple_of(*parts, metadata) + b"R"


def tangle(rng: random.Random) -> bytes:
    """Returns containers that each contain the previous one twice: short, but huge when expanded."""
    depth = rng.choice((3, 30, 60, 200))
    pair, first = rng.choice(((b"\x86", b")"), (b"", b"]")))
    if pair:
        return first + b"2\x86" * depth
    parts = [b"]" + b"r" + struct.pack("<I", 900)]
    for _ in range(depth):
        parts.append(b"0](j" + struct.pack("<I", 900) + b"j" + struct.pack("<I", 900) + b"er" + struct.pack("<I", 900))
    if rng.random() < 0.5:
        parts.append(b"2a")  # and itself
    return b"".join(parts)


def value(rng: random.Random, depth: int = 0, old: bool = False) -> bytes:
    """Returns the instructions for some value."""
    if depth > 4 or rng.random() < 0.3:
        return scalar(rng)

    def some(most: int) -> list[bytes]:
        return [value(rng, depth + 1, old) for _ in range(rng.randrange(most))]

    def call() -> bytes:
        return name(rng) + tuple_of(*some(9)) + rng.choice((b"R", b"R", b"\x81"))

    def odd_call() -> bytes:
        """Returns a call as in a real file, with one argument replaced."""
        parts = [storage(old=old), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89", b"}", b"}"]
        full = rng.choice((TENSOR, "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_tensor"))
        if full.endswith("v3"):
            parts.insert(6, named("torch.float32"))
        parts = parts[:4] if full.endswith("tensor") else parts
        if rng.random() < 0.5:
            parts = [a_tensor(old=old), b"\x88", b"}", b"}" + text("mine") + b"K\x01s"]
            full = "torch._utils._rebuild_parameter_with_state"
            if rng.random() < 0.3:
                parts, full = parts[:3], "torch._utils._rebuild_parameter"
        elif rng.random() < 0.3:
            inner = tuple_of(*parts)
            parts = [named(full), named(rng.choice(("torch.Tensor", "torch.nn.parameter.Parameter"))), inner, b"}"]
            full = "torch._tensor._rebuild_from_type_v2"
        elif rng.random() < 0.2:
            parts, full = [named("torch.float32"), *parts[2:4], b"\x89"], "torch._utils._rebuild_meta_tensor_no_storage"
        parts[rng.randrange(len(parts))] = rng.choice((tangle, scalar, lambda r: value(r, depth + 1, old)))(rng)
        return named(full) + tuple_of(*parts) + b"R"

    return rng.choice((
        lambda: tuple_of(*some(6)), lambda: b"](" + b"".join(some(6)) + b"e", lambda: b"](" + b"".join(some(6)) + b"e",
        lambda: b"}(" + b"".join(scalar(rng) + v for v in some(5)) + b"u", lambda: b"\x8f(" + b"".join(some(5)) + b"\x90",
        lambda: b"(" + b"".join(some(5)) + b"\x91", lambda: b"(" + b"".join(some(5)) + rng.choice((b"l", b"d")),
        lambda: tangle(rng), call, call, odd_call, odd_call, odd_call,
        lambda: a_tensor((number(rng),), (number(rng),), old=old), lambda: storage(old=old),
        lambda: a_tensor((rng.choice((2**20, 2**40)),), (0,), b"}" + text(rng.choice(("conj", "neg"))) + b"\x88s",
                         rng.choice(("FloatStorage", "ComplexFloatStorage")), 2, old),
        lambda: value(rng, depth + 1, old) + value(rng, depth + 1, old) + b"b",
        lambda: value(rng, depth + 1, old) + b"\x94h" + bytes([rng.randrange(4)]) + rng.choice((b"\x86", b"0", b"a", b"s")),
        lambda: value(rng, depth + 1, old) + rng.choice([code.encode("latin1") for code in INSTRUCTIONS]),
        lambda: tuple_of(text("storage"), *some(6)) + b"Q",
    ))()  # fmt: skip


def grammar(rng: random.Random) -> bytes:
    """Returns a file with a value from the grammar."""
    old = rng.random() < 0.2
    return wrapped(rng, value(rng, 0, old) if rng.random() < 0.9 else tangle(rng), old)


def wrapped(rng: random.Random, made: bytes, old: bool) -> bytes:
    """Returns a file around the instructions for a value."""
    made = b"\x80\x02" + made + b"."
    if old:
        head = b"".join(pickle.dumps(v, 2) for v in (legacy.MAGIC, legacy.VERSION, {"little_endian": True}))
        return (
            head
            + made
            + pickle.dumps(rng.choice((["0"], ["0"], [], [0], ["0", "1"])), 2)
            + struct.pack("<q", 4)
            + bytes(16)
        )
    file = io.BytesIO()
    writer = archive.Writer(file, "archive")
    for entry, content in {"data.pkl": made, "byteorder": b"little", "data/0": bytes(16), "version": b"3\n"}.items():
        writer.add(entry, content)
    writer.close()
    return file.getvalue()


# --- bombs -----------------------------------------------------------------------------------------------------------


def remembered(made: bytes, key: int) -> bytes:
    """Returns the instructions that make a value and store it in the memo."""
    return made + b"q" + bytes([key]) + b"0"


def get(key: int) -> bytes:
    return b"h" + bytes([key])


def slow_keys(n: int, kind: int) -> list[bytes]:
    """Returns different keys with the same hash."""
    prime, odd = 2**61 - 1, []
    for i in range(n):
        if kind == 0:
            odd.append(integer(7 + i * prime))
        elif kind == 1:
            odd.append(tuple_of(integer(i * prime)))
        elif kind == 2:
            odd.append(named("torch.device") + tuple_of(text("cpu"), integer(i * prime)) + b"R")
        else:
            parts = [struct.pack(">d", x) for x in (-1000003.0 * i, float(i))]
            odd.append(named("builtins.complex") + tuple_of(b"G" + parts[0], b"G" + parts[1]) + b"R")
    return odd


def bomb(rng: random.Random) -> bytes:
    """Returns a file that repeats one operation many times, to use excessive memory or time."""
    old = rng.random() < 0.15
    kinds = bombs(rng, rng.choice((10, 1000, 10_000)) * rng.randrange(1, 10), rng.choice((10, 1000, 5000)), old)
    return wrapped(rng, kinds[rng.choice(list(kinds))](), old)


def bombs(rng: random.Random, n: int, many: int, old: bool = False) -> dict[str, Callable[[], bytes]]:
    """Returns the function for each kind of bomb: something `n` times, often with values of `many` elements."""
    pairs = b"".join(integer(i) + b"N" for i in range(many))
    shared = {
        "list": b"](" + pairs + b"e", "pairs": b"](" + b"".join(integer(i) + b"N\x86" for i in range(many)) + b"e",
        "dict": b"}(" + pairs + b"u", "ordered": named("collections.OrderedDict") + b")R(" + pairs + b"u",
        "names": b"}(" + b"".join(text(f"name{i}") + b"N" for i in range(many)) + b"u",
        "text": text("é" * many), "bytes": text(bytes(many)), "tuple": b"(" + pairs + b"t",
    }  # fmt: skip
    tensor = a_tensor(old=old)
    calls = {full: remembered(named(full), 0) for full in CALLABLE}
    return {
        "empties": lambda: rng.choice((b"]", b"}", b"\x8f", b"(", b")\x85", b"N\x85", b"](\x91")) * n,
        "deep": lambda: rng.choice((b"]" * n + b"a" * (n - 1), b")" + b"\x85" * n, b"}" * n + b"N" + b"N\x86" * n)),
        "deep dicts": lambda: b"}K\x00" * n + b"N" + b"s" * n,
        "remembered": lambda: b"N" + rng.choice((b"\x94", b"q\x07", b"")) * n
        + b"".join(b"r" + struct.pack("<I", (i * 2654435761) % 2**32) for i in range(n // 5)),
        "doubled": lambda: b"N" + b"2" * n + rng.choice((b"l", b"t", b"")),
        "calls": lambda: calls[full := rng.choice(CALLABLE)] + remembered(rng.choice(list(shared.values())), 1)
        + b"](" + (get(0) + get(1) + (b"\x85R" if full else b"")) * (n // 5) + b"e",
        "no arguments": lambda: calls[rng.choice(CALLABLE)] + b"](" + (get(0) + b")R") * (n // 4) + b"e",
        "thrown away": lambda: calls[rng.choice(CALLABLE)] + remembered(rng.choice(list(shared.values())), 1)
        + (get(0) + get(1) + b"\x85R0") * (n // 5) + b"N",
        "tensors": lambda: remembered(named(TENSOR), 0) + remembered(tuple_of(storage(old=old), b"K\x00", tuple_of(b"K\x04"),
        tuple_of(b"K\x01"), b"\x89", b"}"), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "long tensors": lambda: remembered(named(TENSOR), 0) + remembered(tuple_of(storage(old=old), b"K\x00",
        tuple_of(*[b"K\x01"] * 32), tuple_of(*[b"K\x01"] * 32), b"\x89", b"}"), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "computed": lambda: remembered(named(TENSOR), 0) + remembered(tuple_of(storage(old=old), b"K\x00", tuple_of(integer(2**26)),
        tuple_of(b"K\x00"), b"\x89", b"}", b"}" + text("neg") + b"\x88s"), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "parameters": lambda: remembered(named("torch._utils._rebuild_parameter"), 0) + remembered(tensor + b"\x88N\x87", 1)
        + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "states": lambda: remembered(named("torch._utils._rebuild_parameter_with_state"), 0)
        + remembered(tuple_of(tensor, b"\x88", b"N", shared["names"]), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "metas": lambda: remembered(named("torch._utils._rebuild_meta_tensor_no_storage"), 0) + remembered(tuple_of(
            named("torch.float32"), tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89"), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "typed": lambda: remembered(named("torch._tensor._rebuild_from_type_v2"), 0) + remembered(tuple_of(named(TENSOR),
            named("torch.Tensor"), tuple_of(storage(old=old), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89", b"}"),
            shared["names"]), 1) + b"](" + (get(0) + get(1) + b"R") * (n // 5) + b"e",
        "built": lambda: remembered(shared["names"], 1) + rng.choice((named("collections.OrderedDict") + b")R", tensor))
        + (get(1) + b"b") * (n // 3),
        "nested states": lambda: (tensor if rng.random() < 0.5 else named("collections.OrderedDict") + b")R") + b"q\x000"
        + (named("collections.OrderedDict") + b")R}" + text("a") + get(0) + b"sbq\x000") * (n // 60) + get(0),
        "nested calls": lambda: remembered(named("torch._tensor._rebuild_from_type_v2"), 0) + b")" + (b"q\x010" + get(0)
        + named("torch.Tensor") + get(1) + b"}t").replace(get(0), b"(" + get(0), 1) * (n // 40) + b"q\x010" + get(0) + get(1) + b"R",
        "slow keys": lambda: b"}(" + b"".join(k + b"N" for k in slow_keys(n // 10, rng.randrange(4))) + b"u",
        "slow elements": lambda: b"\x8f(" + b"".join(slow_keys(n // 10, rng.randrange(4))) + b"\x90",
        "wide keys": lambda: remembered(b"(" + b"K\x01" * 64 + b"t", 0) + remembered(b"(" + get(0) * 64 + b"t", 0) + b"}"
        + (get(0) + b"Ns") * (n // 4),
        "long keys": lambda: remembered(text("k" * 60_000), 0) + remembered(text("k" * 60_000), 1) + b"}"
        + (get(0) + b"Ns" + get(1) + b"Ns") * (n // 8),
        "numbers": lambda: remembered(b"\x8b" + struct.pack("<I", many) + b"\x7f" * many, 0) + named(TENSOR) + tuple_of(
            storage(old=old), b"K\x00", b"(" + get(0) * (n // 2) + b"t", b"(" + get(0) * (n // 2) + b"t", b"\x89", b"}") + b"R",
        "digits": lambda: b"I" + b"9" * n + b"\n", "float": lambda: b"F" + b"9" * n + b"\n",
        "text": lambda: b"V" + rng.choice((b"a" * n + b"\\U0001f600", b"\\u12" * n)) + b"\n",
        "wide text": lambda: text("\U0001f600" + "a" * n), "frames": lambda: b"\x95" * n + b"N", "names": lambda: named("torch.float32") * (n // 20),
        "references": lambda: b"](" + storage(old=old) * (n // 40) + b"e",
        "parts": lambda: b"](" + b"".join(b"(" + text("storage") + named("torch.FloatStorage") + text("0") + text("cpu")
            + b"K\x04" + b"(" + text(str(i)) + b"K\x00K\x01ttQ" for i in range(n // 60)) + b"e",
    }  # fmt: skip


def entries_bomb(rng: random.Random) -> bytes:
    """Returns an archive with very many entries, or with overlapping ones."""
    n = rng.choice((10, 1000, 5000))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for i in range(n):
            made.writestr(zipfile.ZipInfo(f"{'a/data.pkl' if i == 0 else i}"), b"N.")
    data = file.getvalue()
    return data if rng.random() < 0.5 else damaged(rng, data)


# --- safetensors -----------------------------------------------------------------------------------------------------


def safetensors(rng: random.Random) -> bytes:
    """Returns a safetensors file with a malicious or damaged header."""

    def odd(depth: int = 0):
        return rng.choice((
            lambda: None, lambda: rng.choice((-1, 0, 1, 4, 2**31, 2**63, 2**64, 10**40, 1.5, 1e300)), lambda: "F32",
            lambda: [odd(depth + 1) for _ in range(rng.randrange(3))] if depth < 3 else 0,
            lambda: {"a": odd(depth + 1)} if depth < 3 else 0, lambda: [0, rng.choice((4, 16, 2**40))], lambda: "x" * 3000,
        ))()  # fmt: skip

    header: dict = {}
    at = 0
    for i in range(rng.choice((1, 2, 5, 300))):
        shape = rng.choice(([1], [2, 2], [], [0], [0, 2**40], [4]))
        size = 4 * int(np.prod(shape)) if 0 not in shape else 0
        header[f"t{i}"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    for _ in range(rng.choice((0, 1, 2))):
        entry = header[rng.choice(list(header))]
        if isinstance(entry, dict):
            entry[rng.choice(("dtype", "shape", "data_offsets", "more"))] = odd()
    if rng.random() < 0.2:
        header[rng.choice(("__metadata__", "t0", ""))] = odd()
    content = json.dumps(header).encode()
    if rng.random() < 0.1:
        content = rng.choice(
            (b"[" * 5000, b'{"a":' * 5000, b"{" + b'"a":1,' * 5000 + b'"b":1}', content.replace(b"F32", b"\xff\xfe"))
        )
    data = struct.pack("<Q", len(content) if rng.random() < 0.95 else rng.choice(EXTREMES)) + content + bytes(at)
    return data if rng.random() < 0.6 else damaged(rng, data)


# --- a case ----------------------------------------------------------------------------------------------------------

FILES: dict[str, tuple[int, Callable[[random.Random], bytes]]] = {  # weight, and function that makes the file
    "bytes": (50, damaged_real), "entries and instructions": (60, damaged_entries), "grammar": (80, grammar),
    "table of contents": (30, damaged_table), "bombs": (10, bomb), "many entries": (4, entries_bomb), "tar": (6, tar),
    "npz": (6, npz), "safetensors": (20, safetensors),
}  # fmt: skip


def made(seed: int) -> tuple[str, bytes]:
    """Returns the kind of file for a seed, and the file."""
    rng = random.Random(seed)
    kind = rng.choices(list(FILES), [often for often, _ in FILES.values()])[0]
    return kind, FILES[kind][1](rng)


def load(kind: str, data: bytes):
    """Reads a file."""
    if kind == "safetensors":
        from tensorgrad.serialization import safetensors as reader

        return reader.load(data)
    return tg.load(io.BytesIO(data), weights_only=True)


def attempt(kind: str, data: bytes) -> tuple[str, Any]:
    """Loads a file. Returns the outcome and the values. Raises: AssertionError for errors of unexpected types."""
    try:
        return "loaded", load(kind, data)
    except CLEAN as error:
        chain: BaseException | None = error
        while chain is not None:  # follows the chain like a traceback
            words = str(chain)
            assert len(words) < 3000, f"a message of {len(words)} characters"
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
        return "refused", None
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} instead of a clean refusal: {str(error)[:300]}") from error


def inside(values: Any) -> None:
    """Checks that the tensors among the values are within their storages."""
    seen, rest = set(), [values]
    while rest and len(seen) < 1000:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, tg.Tensor):
            if value.device.type != "cpu":
                continue
            array, whole = value._array, value.untyped_storage()
            low, high = np.lib.array_utils.byte_bounds(array) if array.size else (whole.data_ptr(), whole.data_ptr())
            assert whole.data_ptr() <= low <= high <= whole.data_ptr() + whole.nbytes(), "a tensor outside its storage"
        elif isinstance(value, dict):
            rest += [*value.values()][:1000]
        elif isinstance(value, list | tuple | set | frozenset):
            rest += list(value)[:1000]


def case(seed: int, slack: float = 1.0) -> str:
    """Loads the file for a seed twice: to measure time and to measure memory. Raises: AssertionError."""
    kind, data = made(seed)
    executed.clear()
    start = time.process_time()
    with watched():
        came, values = attempt(kind, data)
    took = time.process_time() - start
    assert not executed, f"executed {executed[:3]}"
    inside(values)
    values = None
    tracemalloc.start()
    try:
        came, values = attempt(kind, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    record(kind, len(data), took, peak)
    assert peak <= memory(len(data)), f"{peak / MB:.1f} MB of memory for a file of {len(data):,} bytes ({kind}, {came})"
    assert took <= slack * seconds(len(data)), f"{took:.1f} s for a file of {len(data):,} bytes ({kind}, {came})"
    return f"{kind}: {came}"


worst = {"time": 0.0, "memory": 0.0}  # as fractions of the limits


def record(kind: str, length: int, took: float, peak: int) -> None:
    worst["time"] = max(worst["time"], took / seconds(length))
    worst["memory"] = max(worst["memory"], peak / memory(length))


FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "exec", "compile", "socket.connect",
             "os.remove", "os.rename", "shutil.rmtree", "ctypes.dlopen")  # fmt: skip
executed: list[str] = []
watching = False


@contextlib.contextmanager
def watched():
    """Records audit events that no file may cause."""
    global watching
    if not hooked:
        hooked.append(
            sys.addaudithook(
                lambda event, args: (
                    executed.append(f"{event} {args!s:.200}") if watching and event in FORBIDDEN else None
                )
            )
        )
        for codec in ("raw_unicode_escape", "latin1", "ascii"):
            codecs.lookup(codec)
        from tensorgrad.serialization import (
            safetensors,
        )  # runs imports that happen on first use, and creates functions of ops

        for data in corpus("tensorgrad"):
            tg.load(io.BytesIO(data))
        for x in (tg.ones(2), tg.ones(2, dtype=tg.complex64), tg.ones(2, device="meta")):
            (-x.conj()).contiguous().as_strided((2,), (1,)).detach().requires_grad_()
        for layout in (tg.jagged, tg.strided):
            tg.save(tg.nested.nested_tensor([tg.ones(2), tg.ones(3)], layout=layout), nested := io.BytesIO())
            nested.seek(0)
            tg.load(nested)
        with contextlib.suppress(ImportError):
            safetensors.load(safetensors.save({"a": tg.ones(2)}))
        executed.clear()
    watching = True
    try:
        yield
    finally:
        watching = False


hooked: list = []


# --- workers ---------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Reads seeds, runs their cases, and writes the outcome of each.

    No other thread may start or end here: its allocations without the GIL would race with tracemalloc, which is started
    and stopped for each case (CPython 128679; faulthandler's own timer is such a thread).
    """
    faulthandler.enable()
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, resource.RLIM_INFINITY))
    for line in sys.stdin:
        seed, slack = line.split()
        try:
            result = {"came": case(int(seed), float(slack)), "worst": worst}
        except AssertionError as error:
            result = {"wrong": str(error)}
        print(json.dumps(result), flush=True)


class Worker:
    """A process that runs cases; it is restarted if it has died."""

    process: subprocess.Popen | None = None

    def __call__(self, seed: int, slack: float = 1.0) -> dict:
        """Returns the outcome of a case."""
        if self.process is None:
            command = [sys.executable, "-m", "tests.fuzz.loading", "--serve"]
            self.process = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "TENSORGRAD_FAST": "0"},  # no kernel threads; see serve
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        timer = threading.Timer(PATIENCE, self.process.send_signal, [signal.SIGABRT])  # makes it print a traceback
        timer.start()
        try:
            self.process.stdin.write(f"{seed} {slack}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        finally:
            timer.cancel()
        if answer:
            return json.loads(answer)
        status = self.close()
        return {"wrong": f"the process ended (status {status}): it crashed, or had not loaded the file in {PATIENCE} s"}

    def close(self) -> int:
        """Ends the process and returns its status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.communicate()
        return process.returncode


worker = Worker()
atexit.register(worker.close)


def stressed(seed: int) -> str:
    """Runs one case in a separate process. Raises: AssertionError with what is wrong."""
    answer = worker(seed)
    if "wrong" in answer:
        raise AssertionError(f"{answer['wrong']} (python -m tests.fuzz.loading --seed {seed} --cases 1)")
    return answer["came"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.loading", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--slack", type=float, default=1.0, help="a slow machine may take so many times as long")
    parser.add_argument("--write", help="write the seed's file, load nothing")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        serve()
        return 0
    seed = secrets.randbelow(1 << 30) if given.seed is None else given.seed
    if given.write:
        Path(given.write).write_bytes(made(seed)[1])
        return 0
    print(f"python -m tests.fuzz.loading: seed {seed}", flush=True)
    counted: collections.Counter[str] = collections.Counter()
    wrong, most, begin = 0, {}, time.monotonic()
    while counted.total() + wrong < given.cases if given.cases else time.monotonic() - begin < given.seconds:
        this = seed + counted.total() + wrong
        answer = worker(this, given.slack)
        if "wrong" in answer:
            wrong += 1
            print(f"seed {this}: {answer['wrong']}", flush=True)
        else:
            counted[answer["came"]] += 1
            most = {k: max(v, most.get(k, 0.0)) for k, v in answer["worst"].items()}
        if (tried := counted.total() + wrong) % 5000 == 0:
            print(f"{tried} cases in {time.monotonic() - begin:.0f} s, {wrong} wrong", flush=True)
    worker.close()
    took = time.monotonic() - begin
    print(f"{counted.total() + wrong} cases in {took:.0f} s, {wrong} wrong; of what is allowed at most "
          + ", ".join(f"{v:.0%} of the {k}" for k, v in most.items()))  # fmt: skip
    print(", ".join(f"{key} {count}" for key, count in sorted(counted.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
