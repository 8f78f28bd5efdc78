"""Reads the kernels that the package carries: one file for each level of processors.

tools/kernels in the repository writes them.

A file has machine code by family (a file of this folder), loaded when the first kernel of the family is used, within
the call. Its head has the digests of the sources that each family was made of, and of the code itself: code of other
sources, or damaged, is never put into memory. NumPy then runs these ops, and one line says so.

    MAGIC, digest of the head, its length, the head (JSON), and for each family: code, fixed words, places of addresses
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime import memory, native, target
from tensorgrad.system import forks
from tensorgrad.version import tensorgrad as VERSION

MAGIC = b"tensorgrad kernels 2\n"
DIGEST = 32  # bytes
LOCK = forks.lock()  # held while kernels are loaded


class Unusable(RuntimeError):
    """No kernel can be used in this process."""


class Missing(RuntimeError):
    """A kernel that the file does not have, or that was made of other sources."""


def digest(data: bytes | memoryview) -> bytes:
    """Returns the digest of bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def key(identity: str) -> str:
    """Returns what stands for a function's identity (launch.py) in a file."""
    return hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()


# --- what a family was made of ---

_PACKAGE = __name__.rpartition(".")[0].rpartition(".")[0]
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_IMPORT = re.compile(rf"from {re.escape(_PACKAGE)}((?:\.\w+)*) import (\([^)]*\)|.*)")
# Imported by many families, but no machine code depends on them.
_PYTHON_ONLY = ("runtime.thread_pool", "runtime.library", "runtime.memory", "runtime.row", "table")


def sources(family: str) -> dict[str, bytes]:
    """Returns the digests of the sources that a family's code depends on: its file, and what it imports."""
    found: dict[str, bytes] = dict.fromkeys(_PYTHON_ONLY, b"")
    open_names = [family]
    while open_names:
        name = open_names.pop()
        if name not in found:
            text, imports = _source(name)
            if text is not None:
                found[name] = text
                open_names += imports
    return {name: text for name, text in found.items() if text}


@cache
def _source(name: str) -> tuple[bytes | None, list[str]]:
    """Returns the digest of a file (None if there is none), and the names that it imports, files or not."""
    try:
        with open(os.path.join(_FOLDER, *name.split(".")) + ".py", "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
    except OSError:
        return None, []
    imports: list[str] = []
    for package, names in _IMPORT.findall(text.decode()):
        package = package.removeprefix(".")
        imports += [package, *(f"{package}.{n}".removeprefix(".") for n in re.findall(r"\w+", names))]
    return digest(text), imports


def source_digest(family: str) -> str:
    """Returns one digest of them."""
    return digest(b"".join(name.encode() + b"\0" + text for name, text in sorted(sources(family).items()))).hex()


# --- the file ---


class Image:
    """A file of kernels. Raises: Unusable if it is damaged, or belongs to another version."""

    def __init__(self, file: str):
        self.file = file
        try:
            with open(file, "rb") as opened:  # all of it: another file may stand in its place later
                self.data = opened.read()
        except OSError as error:
            raise Unusable(f"{file} cannot be read: {error.strerror}") from None
        if self.data[: len(MAGIC)] != MAGIC:
            raise Unusable(f"{file} is not a file of kernels of this version of the package")
        begin = len(MAGIC) + DIGEST
        self.start = begin + 8 + int.from_bytes(self.data[begin : begin + 8], "little")
        if digest(self.data[begin : self.start]) != self.data[len(MAGIC) : begin]:
            raise Unusable(f"{file} is damaged")
        self.head: dict[str, Any] = json.loads(self.data[begin + 8 : self.start])
        if self.head["version"] != VERSION:
            raise Unusable(f"{file} belongs to version {self.head['version']} of the package, not {VERSION}")
        self.families: dict[str, dict[str, Any]] = self.head["families"]
        self.where = {each: name for name, family in self.families.items() for each in family["entries"]}
        self.addresses: dict[str, int] = {}  # of the families that are loaded

    def blob(self, family: str) -> bytes:
        """Returns the code of a family. Raises: Unusable if it is damaged."""
        entry = self.families[family]
        at = self.start + entry["at"]
        data = self.data[at : at + entry["length"]]
        if digest(data).hex() != entry["digest"]:
            raise Unusable(f"{self.file} is damaged")
        return data

    def load(self, family: str) -> int:
        """Returns the address of a family's code, loading it first if it is not loaded. Raises: Missing, Unusable."""
        if family not in self.addresses:
            entry = self.families[family]
            if entry["sources"] != source_digest(family):
                raise Missing(f"the sources of {family} have changed; `make kernels` in the repository compiles them")
            data, code = self.blob(family), entry["code"]
            fixed = np.frombuffer(data, np.int64, entry["fixed"], code)
            moved = np.frombuffer(data, np.uint32, offset=code + 8 * entry["fixed"])
            known = self.known(family)
            imports = [known[name] for name in entry["imports"]]
            self.addresses[family] = placed(data[:code], fixed, moved, imports, entry["written"], self.head["page"])
        return self.addresses[family]

    def known(self, family: str) -> dict[str, int]:
        """Returns the addresses that a family's imports have in this process."""
        known = native.addresses()
        if native.WINDOWS and family != self.where.get(key(native.CALLS)):
            there = native.words(self.address(native.CALLS), len(native.CALLED))
            known = known | dict(zip(native.CALLED, there, strict=True))
        return known

    def address(self, identity: str) -> int:
        """Returns the address of a function's entry. Raises: Missing, Unusable."""
        name = key(identity)
        if name not in self.where:
            raise Missing(f"the file of kernels does not have {identity:.80}")
        family = self.where[name]
        return self.load(family) + int(self.families[family]["entries"][name])


def placed(code: bytes, fixed: np.ndarray, moved: np.ndarray, imports: list[int], written: int, page: int) -> int:
    """Returns the address of code in memory; `imports` are the addresses of what it imports. Raises: Unusable."""
    fixed = fixed.copy()
    fixed[: len(imports)] = imports
    try:
        return memory.place(code, fixed, written, page, moved)
    except memory.Refused as error:
        raise Unusable(str(error)) from None


@cache
def image() -> Image:
    """Returns this process's file of kernels. Raises: Unusable."""
    try:
        level = target.chosen()
    except LookupError as error:
        raise Unusable(str(error)) from None
    try:
        native.addresses()
    except RuntimeError as error:
        raise Unusable(str(error)) from None
    return Image(target.file_of(level))


# --- kernels ---

loaded: dict[str, Any] = {}  # by name


def load(kernel: str) -> Any:
    """Returns the kernel "family.name". Raises: Missing, Unusable."""
    with LOCK:
        if kernel not in loaded:
            image()
            family, _, name = kernel.rpartition(".")
            loaded[kernel] = importlib.import_module(f"{_PACKAGE}.{family}").KERNELS[name]()
        return loaded[kernel]


COMPILER: Any = None  # in tools/kernels: a function that is given what to compile, and returns no address


@contextmanager
def compiling(compiler: Any) -> Iterator[None]:
    """Has functions compiled instead of loaded."""
    global COMPILER
    COMPILER = compiler
    try:
        yield
    finally:
        COMPILER = None


def address(identity: str, *how: Any, **options: Any) -> int:
    """Returns the address of a function's machine code; `how` is for the compiler."""
    if COMPILER is not None:
        COMPILER(identity, *how, **options)
        return 0
    return image().address(identity)
