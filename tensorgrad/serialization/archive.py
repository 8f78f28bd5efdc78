"""PyTorch's zip archive: `name/data.pkl` describes the values; `name/data/0`, `name/data/1`, ... are the storages.

All entries are uncompressed, and storages are aligned to 64 bytes, so that they can be mapped into memory.
When reading, no number in the file is trusted before it has been checked against the file size.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import platform
import re
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import numpy as np

from tensorgrad.serialization.describe import described, problem

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ALIGNMENT = 64


# --- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Writes an archive sequentially to any object with `write`: in a `with` block, or until `close`."""

    def __init__(self, file, name: str):
        self.stream = Stream(file)
        self.zip = zipfile.ZipFile(self.stream, "w", zipfile.ZIP_STORED)  # type: ignore[call-overload]
        self.name = name
        self.identity = 0  # a checksum of the contents, which PyTorch writes too

    def add(self, entry: str, content) -> None:
        """Writes an entry, aligned to 64 bytes."""
        content = memoryview(content).cast("B")
        info = zipfile.ZipInfo(f"{self.name}/{entry}", (1980, 1, 1, 0, 0, 0))
        info.flag_bits |= 0x08  # the sizes follow the content, so that nothing needs to be rewritten
        info.file_size = content.nbytes
        large = content.nbytes * 1.05 > zipfile.ZIP64_LIMIT
        start = self.zip.fp.tell() + len(info.FileHeader(large)) + 4
        info.extra = struct.pack("<2sH", b"FB", -start % ALIGNMENT) + b"Z" * (-start % ALIGNMENT)
        with self.zip.open(info, "w", force_zip64=large) as out:
            out.write(content)
        self.identity = zlib.crc32(content, self.identity)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind, *error) -> None:
        if kind is None:
            self.close()
        else:
            self.stream.failed = True

    def close(self) -> None:
        """Writes the table of contents."""
        self.add(".data/serialization_id", f"{self.identity:040d}".encode())
        self.zip.close()


class Stream:
    """A write-only file: an incomplete write is continued, or raises an error.

    After an error it silently discards everything: `zipfile` would still write its table of contents.
    """

    def __init__(self, file):
        self.file, self.failed = file, False

    def flush(self) -> None:
        """Flushes the file if possible."""
        if not self.failed and hasattr(self.file, "flush"):
            self.file.flush()

    def write(self, data) -> int:
        """Writes all of the data. Raises: OSError if the file does not accept it."""
        if self.failed:
            return len(data)
        try:
            taken = self.file.write(data)
            rest = memoryview(data).cast("B")
            while (rest := rest[self._taken(taken, len(rest)) :]).nbytes:
                taken = self.file.write(rest)
        except BaseException:
            self.failed = True
            raise
        return len(data)

    def _taken(self, taken, offered: int) -> int:
        """The number of bytes that a file accepted, according to the result of its `write`."""
        if taken is None and isinstance(self.file, io.RawIOBase):
            raise BlockingIOError(errno.EAGAIN, "the file is non-blocking and would block: use a blocking file")
        if type(taken) is not int:  # a nonstandard `write`: without an exception, assume success
            return offered
        if not 0 < taken <= offered and offered:
            raise OSError(errno.EIO, f"the file accepted {taken} of {offered} bytes")
        return taken


@contextlib.contextmanager
def replacing(path) -> Iterator:
    """A temporary file that atomically replaces `path` once all of its contents have reached the disk.

    Until then, and after an error or a crash, the old file is unchanged. Temporary files left by a crash are
    removed by the next writer to the folder.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or a device cannot be replaced
        with open(target, "wb") as file:
            yield file
        return
    _remove_left(target.parent)
    handle, temporary = _temporary(target)
    # Keeps the lock until the file has its name. Not without locks, as on Windows, which cannot rename open files.
    lock = -1 if fcntl is None else os.dup(handle)
    try:
        file = open(handle, "wb")  # noqa: SIM115
        try:
            yield file
            file.flush()
            if hasattr(os, "fchmod"):  # by its descriptor, as the name may stand for another file by now
                os.fchmod(file.fileno(), _mode(target))
            os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(Exception):  # flushing its buffer may fail as well
                file.close()
            raise
        file.close()
        if not hasattr(os, "fchmod") and hasattr(os, "umask"):  # WebAssembly has no permissions
            os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        if lock >= 0:
            os.close(lock)
    _sync_folder(target.parent)


# A file is locked while its writer lives. The name of the file contains the system on which to check the lock, since
# some network file systems do not share locks.
_LEFT = re.compile(r"\..*\.([0-9a-f]{8})-[a-z0-9_]+\.tensorgrad-tmp")
_SURELY_LEFT = 24 * 3600.0  # seconds without changes after which a file from another system counts as abandoned


@functools.cache
def _system() -> str:
    """An identifier of the running system: shared by its containers, different after each boot."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        name = platform.node()
    return f"{zlib.crc32(name.encode()):08x}"


def _temporary(target: Path) -> tuple[int, str]:
    """Creates a temporary file in the target's folder, and locks it. Returns its handle and name."""
    while True:
        start = f".{target.name[:64]}.{_system()}-"
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=start, suffix=".tensorgrad-tmp")
        if _locked(handle) is not False and (fcntl is None or os.fstat(handle).st_nlink):
            return handle, name
        os.close(handle)  # another process removed it as abandoned before it was locked


def _locked(handle: int) -> bool | None:
    """Locks a file. Returns False if another process holds the lock, None if files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_left(folder: Path) -> None:
    """Removes temporary files of killed processes from a folder; never one whose writer may still be running."""
    with contextlib.suppress(OSError):
        left = [name for name in os.listdir(folder) if name.endswith(".tensorgrad-tmp")]
        for name in left:
            if found := _LEFT.fullmatch(name):
                with contextlib.suppress(OSError):
                    _remove_if_left(folder / name, found[1] == _system())


def _remove_if_left(path: Path, here: bool) -> None:
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        locked, state = _locked(handle), os.fstat(handle)
        surely = time.time() - state.st_mtime > _SURELY_LEFT
        if locked is not False and (surely or (here and locked)):
            os.unlink(path)
    finally:
        os.close(handle)


def _mode(target: Path) -> int:
    """The permissions of the file to be replaced, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Flushes a folder to disk, so that the new file name is durable too, on systems that support this."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading ---------------------------------------------------------------------------------------------------------


_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64, _LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_LONGEST_COMMENT = 1 << 16


class Entry(NamedTuple):
    """The offset of an entry's header in the file, the size and checksum of its contents, and whether they are
    compressed, and to what size."""

    offset: int
    size: int
    checksum: int
    compressed: bool
    packed: int


class Reader:
    """Reads the entries of an archive of PyTorch's.

    Raises: UnpicklingError for anything that PyTorch never writes: compressed, encrypted or duplicate entries, entries
    whose total size exceeds that of the file, or entries outside of a folder.

    `compressed`: the endings of names of entries that may be compressed. Who reads one checks its `size` first.
    """

    compressed: tuple[str, ...] = ()

    def __init__(self, file):
        self.file = file
        self.length = file.seek(0, os.SEEK_END)
        if type(self.length) is not int:  # a nonstandard file object
            self.length = file.tell()
        self.entries: dict[str, Entry] = {}
        try:
            self._read_table()
        except (struct.error, IndexError) as error:
            raise UnpicklingError(f"the file is damaged: its table of contents is garbled ({problem(error)})") from None
        self.prefix = self._find_prefix()

    def _find_prefix(self) -> str:
        """The folder that all entries of interest are in, with a slash at its end."""
        folder, slash, _ = next(iter(self.entries), "").partition("/")
        if not slash:
            raise UnpicklingError("the file is a zip archive, but PyTorch did not write it: it has no folder")
        return folder + slash

    def _read_table(self) -> None:
        """Reads the entries. (Not with `zipfile`, which uses a kilobyte for each, however small it is in the file.)"""
        begin = max(0, self.length - _LONGEST_COMMENT - _END.size - _LOCATOR.size - _END64.size)
        tail = bytes(self._bytes(begin, self.length - begin, "the table of contents"))
        at = tail.rfind(b"PK\x05\x06")
        if at < 0:
            raise UnpicklingError("the file is damaged or cut short: its table of contents is missing")
        _, _, _, _, count, size, start, _ = _END.unpack_from(tail, at)
        before = at - _LOCATOR.size - _END64.size
        if before >= 0 and tail[at - _LOCATOR.size :][:4] == b"PK\x06\x07":
            *_, count, size, start = _END64.unpack_from(tail, before)
            at = before
        shift = begin + at - size - start  # of an archive with other data in front of it
        if shift < 0 or size > self.length or count * _ENTRY.size > size:
            raise UnpicklingError("the file is damaged: its table of contents is misplaced")
        table = bytes(self._bytes(begin + at - size, size, "the table of contents"))
        at, total = 0, size
        for _ in range(count):
            at, name, entry = _entry(table, at, shift, self.compressed)
            total += entry.packed + _LOCAL.size + len(name)
            if name in self.entries:
                raise UnpicklingError(f"the archive has two entries named {described(name)}")
            if total > self.length:
                raise UnpicklingError("the archive's entries are longer than the file")
            self.entries[name] = entry

    def has(self, entry: str) -> bool:
        """Returns whether there is an entry of this name."""
        return self.prefix + entry in self.entries

    def size(self, entry: str) -> int:
        """Returns the size of an entry in bytes. Raises: UnpicklingError if there is none of this name."""
        info = self.entries.get(self.prefix + entry)
        if info is None:
            raise UnpicklingError(f"the archive has no entry {described(entry)}, which its data.pkl refers to")
        return info.size

    def start(self, entry: str) -> int:
        """Returns the offset in the file at which the contents of an entry begin."""
        self.size(entry)
        offset, *_, size = self.entries[self.prefix + entry]
        header = bytes(self._bytes(offset, _LOCAL.size, entry))
        if header[:4] != b"PK\x03\x04":
            raise UnpicklingError(f"the file is damaged: the entry {described(entry)} is misplaced")
        *_, name_length, extra_length = _LOCAL.unpack(header)
        start = offset + _LOCAL.size + name_length + extra_length
        if start + size > self.length:
            raise UnpicklingError(f"the file is cut short: the entry {described(entry)} reaches beyond its end")
        return start

    def read(self, entry: str) -> np.ndarray:
        """Returns the contents of an entry. Raises: UnpicklingError if the checksum is wrong."""
        start = self.start(entry)
        _, size, _, compressed, packed = self.entries[self.prefix + entry]
        content = self._bytes(start, packed, entry)
        if compressed:
            content = _unpacked(content, size, entry)
        if zlib.crc32(content.data) != self.entries[self.prefix + entry].checksum:
            raise UnpicklingError(f"the file is damaged: the checksum of the entry {described(entry)} is wrong")
        return content

    def _bytes(self, start: int, size: int, what: str) -> np.ndarray:
        """Reads bytes from the file. Raises: UnpicklingError if there are not enough."""
        if start + size > self.length:
            raise UnpicklingError(f"the file is cut short: {described(what)} reaches beyond its end")
        self.file.seek(start)
        content = np.empty(size, np.uint8)
        view, done = content.data, 0
        straight = getattr(self.file, "readinto", None)
        while done < size:
            part = view[done : done + (1 << 24)]
            if straight is not None:
                count = straight(part)
            else:
                chunk = self.file.read(len(part))
                count = len(chunk)
                part[:count] = chunk
            if not count:
                raise UnpicklingError(f"the file is cut short: {described(what)} ends in the middle")
            done += count
        return content


class CheckpointReader(Reader):
    """Reads the entries of what `torch.save` wrote. Raises: UnpicklingError also if there is no `data.pkl`."""

    compressed = (".py", ".debug_pkl")  # of a program, which is refused by name

    def _find_prefix(self) -> str:
        found = [name for name in self.entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(found) != 1:
            arrays = bool(self.entries) and all(name.endswith(".npy") for name in self.entries)
            what = "of NumPy arrays (numpy.load reads it)" if arrays else "without data.pkl"
            raise UnpicklingError(f"the file is not a checkpoint, but a zip archive {what}")
        prefix = found[0].removesuffix("data.pkl")
        if f"{prefix}constants.pkl" in self.entries:
            raise UnpicklingError("the file is a TorchScript program: torch.jit.load loads it")
        return prefix


def _unpacked(content: np.ndarray, size: int, entry: str) -> np.ndarray:
    """Expands a compressed entry. Raises: UnpicklingError if it does not have the size that the table says."""
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = machine.decompress(content.data, size + 1)
    except zlib.error as error:
        raise UnpicklingError(f"the file is damaged: {described(entry)} cannot be expanded ({error})") from None
    if len(found) != size or not machine.eof:
        raise UnpicklingError(f"the file is damaged: {described(entry)} does not have the size that it should have")
    return np.frombuffer(found, np.uint8)


def _entry(table: bytes, at: int, shift: int, compressed: tuple[str, ...]) -> tuple[int, str, Entry]:
    """The position of the next entry in the table, and the name and location of this one."""
    fields = _ENTRY.unpack_from(table, at)
    flags, method, checksum, packed, size = fields[3], fields[4], *fields[7:10]
    name_length, extra_length, comment_length, offset = *fields[10:13], fields[16]
    begin = at + _ENTRY.size
    name = table[begin : begin + name_length].decode("utf-8", "surrogateescape")
    extra = table[begin + name_length : begin + name_length + extra_length]
    if 0xFFFFFFFF in (packed, size, offset):
        size, packed, offset = _long(extra, size, packed, offset)
    if fields[0] != b"PK\x01\x02":
        raise UnpicklingError("the file is damaged: its table of contents is garbled")
    squeezed = method == zipfile.ZIP_DEFLATED and name.endswith(compressed)
    if not squeezed and (method != zipfile.ZIP_STORED or size != packed):
        raise UnpicklingError(f"the entry {described(name)} is compressed, which PyTorch's files never are")
    if flags & 0x01:
        raise UnpicklingError(f"the entry {described(name)} is encrypted")
    return (
        begin + name_length + extra_length + comment_length,
        name,
        Entry(offset + shift, size, checksum, squeezed, packed),
    )


def _long(extra: bytes, *numbers: int) -> Iterator[int]:
    """The values that do not fit into 32 bits, from the entry's extra field."""
    at = 0
    while struct.unpack_from("<H", extra, at)[0] != 1:
        at += 4 + struct.unpack_from("<H", extra, at + 2)[0]
    at += 4
    for number in numbers:
        if number == 0xFFFFFFFF:
            number = struct.unpack_from("<Q", extra, at)[0]
            at += 8
        yield number
