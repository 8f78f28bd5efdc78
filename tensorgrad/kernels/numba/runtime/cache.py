"""The cache of compiled kernels: one file of machine code per family (a file of this folder).

A file's name and contents hold its key: a hash of everything the code depends on, and of no path, so checkouts,
environments and users with the same sources and versions on the same kind of processor share it. A file that has
another key, is damaged, or may have been written by another user counts as missing. A file is written under a temporary
name and then renamed. The family's lock is held during compilation, so only one of several processes compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tensorgrad.dispatch import kernel_tables
from tensorgrad.system import folders

_MAGIC = b"tensorgrad kernels 1\n"
_DIGEST = 32  # bytes
SUFFIX = ".kernels"
MOST = 128 << 20  # bytes that all files together may take
_VERSIONS = 8  # files kept per family, for other versions and processors
_OLD = 30 * 86400.0  # seconds without use after which a file is removed
_FORMER = re.compile(r"python\d+\.\d+-numba.*-llvmlite.*-numpy.*")  # folders of earlier versions of this cache
_EXPIRY = 86400.0  # seconds for which a first failure is remembered, doubled for each further one


class Part(NamedTuple):
    """The machine code of one compiled function."""

    entry: str  # the name of its entry point
    names: list[str]  # the names it needs from the process
    data: bytes


class Library:
    """The compiled functions of a family."""

    def __init__(self, family: str, key: str):
        self.family, self.key = family, key
        self.proven: set[str] = set()  # the kernels that are complete and matched NumPy's results on this machine
        self.parts: dict[str, Part] = {}  # by the function's identity (launch.py)
        self.seconds: dict[str, float] = {}  # processor seconds that compilation took, by stage (internals.py)

    def encoded(self) -> bytes:
        at, blobs, listed = 0, [], {}
        for identity, (entry, names, data) in self.parts.items():
            listed[identity] = [entry, names, at, len(data)]
            blobs.append(data)
            at += len(data)
        head = json.dumps(
            {"family": self.family, "key": self.key, "proven": sorted(self.proven), "parts": listed}
            | {"seconds": {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}}
        ).encode()
        inside = len(head).to_bytes(8, "little") + head + b"".join(blobs)
        return _MAGIC + hashlib.blake2b(inside, digest_size=_DIGEST).digest() + inside

    @classmethod
    def decoded(cls, data: bytes, family: str, key: str) -> Library:
        """Reads what `encoded` made. Raises: ValueError if the data is something else, or of another family or key."""
        start = len(_MAGIC) + _DIGEST
        inside = memoryview(data)[start:]
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("it is not a file of kernels")
        if hashlib.blake2b(inside, digest_size=_DIGEST).digest() != data[len(_MAGIC) : start]:
            raise ValueError("it is damaged")
        size = int.from_bytes(inside[:8], "little")
        head = json.loads(bytes(inside[8 : 8 + size]))
        if (head["family"], head["key"]) != (family, key):
            raise ValueError("it belongs to another family or version")
        made, blobs = cls(family, key), inside[8 + size :]
        made.proven, made.seconds = set(head["proven"]), {k: float(v) for k, v in head["seconds"].items()}
        for identity, (entry, names, at, length) in head["parts"].items():
            made.parts[identity] = Part(entry, names, bytes(blobs[at : at + length]))
        return made


# --- keys ---


def texts(family: str) -> dict[str, bytes]:
    """Returns the sources that a family's code depends on, by name: its file, its imports, the compiler's files."""
    found = {_PYTHON_ONLY: b""}
    open_names = [family, "runtime.build", "runtime.launch", "runtime.native"]
    while open_names:
        name = open_names.pop()
        if name not in found:
            text, imports = _source(name)
            if text is not None:
                found[name] = text
                open_names += imports
    return found


@cache
def _source(name: str) -> tuple[bytes | None, list[str]]:
    """Returns a file's text (None if there is none) and the names that it imports, files or not.

    Families share most of their files, and a program loads many families when it starts.
    """
    try:
        with open(os.path.join(_FOLDER, *name.split(".")) + ".py", "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
    except OSError:
        return None, []
    imports: list[str] = []
    for package, names in _IMPORT.findall(text.decode()):
        package = package.removeprefix(".")
        imports += [package, *(f"{package}.{n}".removeprefix(".") for n in re.findall(r"\w+", names))]
    return text, imports


_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PYTHON_ONLY = "runtime.thread_pool"  # imported by every family, but no machine code depends on it
_IMPORT = re.compile(r"from tensorgrad\.kernels\.numba((?:\.\w+)*) import (\([^)]*\)|.*)")


def key(family: str) -> str:
    """Hashes what a family's code depends on: sources, versions and the processor that kernels are for."""
    from tensorgrad.kernels.numba.runtime import native

    return _key(family, native.processor(native.level()), _versions())


def _versions() -> tuple[str, ...]:
    from tensorgrad.kernels.numba.runtime import internals

    return tuple([f"{name} {internals.version(name)}" for name in ("numba", "llvmlite", "numpy")])


@cache
def _key(family: str, processor: tuple[str, ...], versions: tuple[str, ...]) -> str:
    lanes = [sys.implementation.cache_tag, sys.platform, getattr(sys, "abiflags", ""), str(object.__basicsize__)]
    made = hashlib.sha256("\0".join([family, *lanes, *versions, *processor]).encode())
    for name, text in sorted(texts(family).items()):
        made.update(f"\0{name} {len(text)}\0".encode() + text)
    return made.hexdigest()


# --- folders ---


def folder() -> Path | None:
    """Returns the folder of the cache: TENSORGRAD_CACHE, or the user's cache folder; None if there is none."""
    given = os.environ.get("TENSORGRAD_CACHE")
    if given:
        return Path(given)
    base = folders.cache()
    return None if base is None else base / "tensorgrad"


_private: list[Path] = []


def private() -> Path:
    """Returns a folder private to this process, for kernels that cannot be kept elsewhere. It is removed at exit."""
    if not _private:
        import tempfile  # here and below, since programs that only read the cache need none of it

        made = Path(tempfile.mkdtemp(prefix="tensorgrad-"))
        _private.append(made)
        atexit.register(_remove, made, os.getpid())
    return _private[0]


def _remove(place: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a fork of it
        import shutil

        shutil.rmtree(place, ignore_errors=True)


@cache
def _writable(place: Path) -> bool:
    import tempfile

    try:
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def place() -> Path:
    """Returns the folder where newly compiled kernels are stored."""
    found = folder()
    return found if found is not None and _writable(found) else private()


def use(where: Path) -> None:
    """Also reads kernels from this folder."""
    _private.append(where)


CARRIED: list[Path] = []  # folders that are only read (carried.py)


def places() -> list[Path]:
    """Returns the folders to read from: what is carried along, the cache, and those of this process."""
    found = folder()
    return CARRIED + ([] if found is None else [found]) + _private


def path(where: Path, family: str, processor: tuple[str, ...] | None = None, suffix: str = SUFFIX) -> Path:
    """Returns a family's file, for the processor that kernels are for, or for another one."""
    found = key(family) if processor is None else _key(family, processor, _versions())
    return where / f"{family}-{found[:20]}{suffix}"


# --- reading and writing ---


def _say(text: str) -> None:
    if kernel_tables.NOTICE is not None:
        kernel_tables.NOTICE(text)


def trusted(file: Path, most: int = MOST) -> bytes | None:
    """Returns the contents of a file that only this user (or the system) can have written; else None."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        opened = os.open(file, flags)
    except OSError:
        return None
    try:
        found = os.fstat(opened)
        foreign = hasattr(os, "getuid") and (found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022)
        if foreign or not stat.S_ISREG(found.st_mode) or found.st_size > most:
            _say(f"the cached file {file} is ignored: another user may have written it, or it is not a regular file")
            return None
        with open(opened, "rb", closefd=False) as handle:
            return handle.read()
    except OSError:
        return None
    finally:
        os.close(opened)


def read(family: str) -> Library:
    """Returns what is compiled of a family; an empty library if there is no intact file that belongs to this user."""
    made = Library(family, key(family))
    for where in places():
        file = path(where, family)
        data = trusted(file)
        if data is None:
            continue
        try:
            found = Library.decoded(data, family, made.key)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _say(f"the cached file {file} is ignored and will be rebuilt when needed: {error}")
            continue
        made.parts.update(found.parts)
        made.proven |= found.proven
        made.seconds = made.seconds or found.seconds
        if where in CARRIED:
            continue
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > 86400:
                os.utime(file)  # mark it as used, so it does not count as old
    return made


def store(file: Path, data: bytes) -> None:
    """Writes a file atomically: readers find either all of it or the previous contents. Raises: OSError."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".tmp")
    try:
        with open(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def write(library: Library, where: Path) -> None:
    store(path(where, library.family), library.encoded())


@contextlib.contextmanager
def lock(where: Path, family: str, patience: float = 600.0) -> Iterator[bool]:
    """Holds a family's lock, which ends with the process. Yields false after a timeout or if locks do not exist."""
    file = path(where, family, suffix=".lock")
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except OSError:
        yield False
        return
    try:
        yield _taken(handle, time.monotonic() + patience)
    finally:
        os.close(handle)


def _taken(handle: int, until: float) -> bool:
    try:
        import fcntl

        def take() -> None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    except ImportError:
        import msvcrt

        def take() -> None:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]

    while True:
        try:
            take()
            return True
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return False


# --- failures ---


def failures(family: str, where: Path) -> list[dict[str, Any]]:
    """Returns a family's failures: each has "kernel", "reason", "crash" (whether it ended the process) and "time"."""
    data = trusted(path(where, family, suffix=".failed"), 1 << 20)
    try:
        found = json.loads(data or b"[]")
        return [dict(f) for f in found if isinstance(f["time"], int | float) and f["kernel"] and f["reason"]]
    except (ValueError, KeyError, TypeError):
        return []


def remember(family: str, kernel: str, reason: str, crash: bool) -> None:
    """Records that a kernel could not be compiled."""
    new = {"kernel": kernel, "reason": reason[:300], "crash": crash, "time": time.time()}
    where = place()
    with contextlib.suppress(OSError):
        found = [*failures(family, where), new][-20:]
        store(path(where, family, suffix=".failed"), json.dumps(found, indent=1).encode())


def refused(family: str, kernel: str) -> str | None:
    """Returns why a kernel must not be compiled now: it failed before, or one of its family crashed the process."""
    for where in places():
        found = [f for f in failures(family, where) if f.get("crash") or f["kernel"] == kernel]
        if found and time.time() - found[-1]["time"] < min(_EXPIRY * 2 ** (len(found) - 1), _OLD):
            return str(found[-1]["reason"])
    return None


# --- contents and removal ---


def files(where: Path | None = None) -> list[tuple[Path, int, float]]:
    """Lists all files of kernels: path, size in bytes, and time of last use."""
    where, found = where or folder(), []
    if where is None or not where.is_dir():
        return []
    for file in where.iterdir():
        with contextlib.suppress(OSError):
            if file.name.endswith(SUFFIX):
                status = file.stat()
                found.append((file, status.st_size, status.st_mtime))
    return sorted(found, key=lambda one: -one[2])


def prune(where: Path, most: int = MOST) -> None:
    """Removes files that are long unused or exceed the limits, and leftovers of earlier versions and killed writers."""
    seen: dict[str, int] = {}
    total, now = 0, time.time()
    with contextlib.suppress(OSError):
        for file, size, used in files(where):
            family = file.name.rpartition("-")[0]
            seen[family] = seen.get(family, 0) + 1
            total += size
            if now - used > _OLD or seen[family] > _VERSIONS or total > most:
                for suffix in (SUFFIX, ".failed", ".lock"):
                    file.with_suffix(suffix).unlink(missing_ok=True)
        for entry in list(where.iterdir()):
            if _FORMER.fullmatch(entry.name) and not entry.is_symlink() and now - entry.stat().st_mtime > _OLD:
                import shutil

                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith(".") and entry.name.endswith(".tmp") and now - entry.stat().st_mtime > 3600:
                entry.unlink(missing_ok=True)
