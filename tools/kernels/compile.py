"""Compiles families of kernels for a level, and writes the file that the package carries."""

from __future__ import annotations

import importlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import launch, library, native, target
from tools.kernels.link import PAGES, Linked, Part, link

_LAUNCHER_OF = "runtime.spin"  # the family that every program loads
_CALLS_OF = "runtime.native"  # a family without kernels; only Windows loads it
# What the code depends on.
_COMPILER = ("compile", "dialect", "entries", "fusing", "internals", "lean", "link", "shortcuts")


def families() -> dict[str, list[str]]:
    """Returns the kernels of each family. The order says which family has a function that several use: the first."""
    found: dict[str, list[str]] = {_CALLS_OF: []}
    for row in table.ROWS:
        family, _, name = row.kernel.rpartition(".")
        names = found.setdefault(family, [])
        if name not in names:
            names.append(name)
    return {family: found[family] for family in sorted(found)}


@cache
def compiler_digest() -> str:
    """Returns a digest of what else the code depends on: the compiler, its versions, the list of families."""
    from tools.kernels import internals

    here = Path(__file__).parent
    texts = [(here / f"{name}.py").read_bytes().replace(b"\r\n", b"\n") for name in _COMPILER]
    versions = [f"{name} {internals.version(name)}".encode() for name in ("numba", "llvmlite")]
    return library.digest(b"\0".join([*texts, *versions, repr(sorted(families())).encode()])).hex()


def compiled(level: str, claim: Callable[[str], bool]) -> tuple[dict[str, tuple[Linked, str]], dict[str, str]]:
    """Compiles the families that `claim` accepts, the longest first, so that the processes end together.

    Returns: what was linked of each, with the digest of its sources; and the family of every function that any family
    uses, by its key.
    """
    from tools.kernels import dialect, entries

    dialect.use(level)
    owners: dict[str, str] = {}
    held: dict[str, dict[str, Callable[[str], bytes]]] = {name: {} for name in families()}
    sizes: dict[str, int] = {}  # of the families' files
    sources = {name: library.source_digest(name) for name in families()}  # before they are imported
    others = {_LAUNCHER_OF: (launch.LAUNCHER, entries.launcher), _CALLS_OF: (native.CALLS, entries.calls)}
    family = ""

    def hold(identity: str, build: Callable[[str], bytes]) -> None:
        key = library.key(identity)
        if key not in owners:
            owners[key] = family
            held[family][key] = build

    def compiler(identity: str, function: Any, signature: str, kind: str, **options: Any) -> None:
        hold(identity, lambda entry: entries.built(function, signature, kind, entry, **options))

    with library.compiling(compiler):
        for family, names in families().items():
            if family in others:
                hold(*others[family])
            module = importlib.import_module(f"{table.__package__}.{family}")
            sizes[family] = os.path.getsize(str(module.__file__))
            for name in names:
                module.KERNELS[name]()
    linked = {}
    for name in sorted(held, key=lambda name: (-len(held[name]) * sizes[name], name)):
        if claim(name):
            entry = "tensorgrad_{}".format
            parts = {key: Part(entry(key), build(entry(key))) for key, build in held[name].items()}
            linked[name] = link(parts, target.LEVELS[level].machine), sources[name]
    return linked, owners


def packed(linked: Linked, sources: str) -> tuple[dict[str, Any], bytes]:
    """Returns what a file's head says of a family (library.py), and the family's bytes."""
    code = linked.code + bytes(-len(linked.code) % 64)
    data = (
        code
        + struct.pack(f"<{len(linked.fixed)}q", *linked.fixed)
        + struct.pack(f"<{len(linked.moved)}I", *linked.moved)
    )
    told = {
        "sources": sources, "digest": library.digest(data).hex(), "length": len(data), "code": len(code),
        "fixed": len(linked.fixed), "written": linked.written, "imports": linked.imports, "entries": linked.entries,
    }  # fmt: skip
    return told, data


def write(file: Path, level: str, made: dict[str, tuple[dict[str, Any], bytes]]) -> None:
    """Writes the file of a level, all of it or nothing."""
    at, blobs, told = 0, [], {}
    for name, (about, data) in sorted(made.items()):
        blobs.append(data + bytes(-len(data) % 64))
        told[name] = about | {"at": at, "kernels": families()[name]}
        at += len(blobs[-1])
    head: dict[str, Any] = {
        "version": library.VERSION, "level": level, "page": PAGES[target.LEVELS[level].machine],
        "compiler": compiler_digest(), "families": told,
    }  # fmt: skip
    inside = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    inside += b" " * (-(len(inside) + len(library.MAGIC) + library.DIGEST + 8) % 64)
    inside = len(inside).to_bytes(8, "little") + inside
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(handle, "wb") as opened:
            opened.write(library.MAGIC + library.digest(inside) + inside + b"".join(blobs))
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def kept(file: Path, level: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Returns the families in a file that were made of the same sources by the same compiler."""
    try:
        image = library.Image(str(file))
        if image.head["compiler"] != compiler_digest() or image.head["level"] != level:
            return {}
        return {
            name: ({key: value for key, value in told.items() if key not in ("at", "kernels")}, image.blob(name))
            for name, told in image.families.items()
            if told["kernels"] == families().get(name) and told["sources"] == library.source_digest(name)
        }
    except (library.Unusable, ValueError, KeyError):
        return {}


def lacking(made: dict[str, tuple[dict[str, Any], bytes]], owners: dict[str, str]) -> set[str]:
    """Returns the families to compile, so that all functions that are used are there."""
    there = {key for told, _ in made.values() for key in told["entries"]}
    return {family for key, family in owners.items() if key not in there}


def claims(folder: Path, wanted: Iterable[str]) -> Callable[[str], bool]:
    """Returns a function that gives each of the wanted families to one of the processes that share a folder."""
    wanted = set(wanted)

    def claim(family: str) -> bool:
        if family not in wanted:
            return False
        try:
            os.close(os.open(folder / f"{family}.claimed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        print(family, flush=True)
        return True

    return claim
