"""PyTorch's zip archive: `name/data.pkl` says what the values are, `name/data/0`, `name/data/1`, ... hold the storages.

All entries are stored uncompressed, the storages from multiples of 64 bytes on, so that they can be mapped into memory.
Reading trusts no number in the file before it has been compared with the file's own size.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import numpy as np

ALIGNMENT = 64
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


# --- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Writes an archive to anything with `write`, front to back."""

    def __init__(self, file, name: str):
        self.zip = zipfile.ZipFile(_Stream(file), "w", zipfile.ZIP_STORED)  # type: ignore[call-overload]
        self.name = name
        self.identity = 0  # of the contents: PyTorch writes one too

    def add(self, entry: str, content) -> None:
        """One entry, its first byte at a multiple of 64 from the start of the archive."""
        content = memoryview(content).cast("B")
        info = zipfile.ZipInfo(f"{self.name}/{entry}", (1980, 1, 1, 0, 0, 0))
        info.flag_bits |= 0x08  # the sizes follow the content: nothing that is written is written again
        info.file_size = content.nbytes
        large = content.nbytes * 1.05 > zipfile.ZIP64_LIMIT
        start = self.zip.fp.tell() + len(info.FileHeader(large)) + 4
        info.extra = struct.pack("<2sH", b"FB", -start % ALIGNMENT) + b"Z" * (-start % ALIGNMENT)
        with self.zip.open(info, "w", force_zip64=large) as out:
            out.write(content)
        self.identity = zlib.crc32(content, self.identity)

    def close(self) -> None:
        """Writes the table of contents."""
        self.add(".data/serialization_id", f"{self.identity:040d}".encode())
        self.zip.close()


class _Stream:
    """Shows `zipfile` a file that can only be written, so that it never seeks."""

    def __init__(self, file):
        self.write, self.flush = file.write, getattr(file, "flush", lambda: None)


@contextlib.contextmanager
def replacing(path) -> Iterator:
    """A file to write that takes the place of `path` in one step, when all of it has reached the disk.

    Until then, and after an error or a crash in between, the old file stays as it was.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or a device: there is nothing to replace
        with open(target, "wb") as file:
            yield file
        return
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.", suffix=".tmp")
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Makes the new name of the file as lasting as its contents, where folders can be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading ---------------------------------------------------------------------------------------------------------


class Reader:
    """The entries of an archive.

    Raises: UnpicklingError for what PyTorch never writes: compressed, encrypted or doubled entries, entries that
    together are longer than the file, or no `data.pkl`.
    """

    def __init__(self, file):
        self.file = file
        file.seek(0, os.SEEK_END)
        self.length = file.tell()
        try:
            self.zip = zipfile.ZipFile(file)
            entries = self.zip.infolist()
        except Exception as error:
            raise UnpicklingError(f"the file is damaged: its table of contents cannot be read ({error})") from error
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self.entries:
                raise UnpicklingError(f"the archive has two entries named {entry.filename!r}")
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise UnpicklingError(f"the entry {entry.filename!r} is compressed, which PyTorch's files never are")
            if entry.flag_bits & 0x01:
                raise UnpicklingError(f"the entry {entry.filename!r} is encrypted")
            self.entries[entry.filename] = entry
        if sum(entry.file_size for entry in entries) > self.length:
            raise UnpicklingError("the archive's entries are longer than the file")
        found = [name for name in self.entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(found) != 1:
            raise UnpicklingError("the file is a zip archive, but no checkpoint: it has no data.pkl")
        self.prefix = found[0].removesuffix("data.pkl")
        if f"{self.prefix}constants.pkl" in self.entries:
            raise UnpicklingError("the file is a TorchScript program: these cannot be loaded, only saved tensors can")

    def has(self, entry: str) -> bool:
        """Whether there is such an entry."""
        return self.prefix + entry in self.entries

    def size(self, entry: str) -> int:
        """How many bytes an entry has. Raises: UnpicklingError if there is none of this name."""
        info = self.entries.get(self.prefix + entry)
        if info is None:
            raise UnpicklingError(f"the archive has no entry {entry!r}, which its data.pkl refers to")
        return info.file_size

    def start(self, entry: str) -> int:
        """Where in the file the bytes of an entry begin."""
        size = self.size(entry)
        info = self.entries[self.prefix + entry]
        self.file.seek(info.header_offset)
        header = self.file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise UnpicklingError(f"the file is damaged: the entry {entry!r} is not where it should be")
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if start + size > self.length:
            raise UnpicklingError(f"the file is cut short: the entry {entry!r} reaches beyond its end")
        return start

    def read(self, entry: str) -> np.ndarray:
        """The bytes of an entry. Raises: UnpicklingError if they are not those that were written."""
        start, content = self.start(entry), np.empty(self.size(entry), np.uint8)
        self.file.seek(start)
        view, done = content.data, 0
        while done < len(view):
            chunk = self.file.read(min(len(view) - done, 1 << 24))
            if not chunk:
                raise UnpicklingError(f"the file is cut short: the entry {entry!r} ends in the middle")
            view[done : done + len(chunk)] = chunk
            done += len(chunk)
        if zlib.crc32(content.data) != self.entries[self.prefix + entry].CRC:
            raise UnpicklingError(f"the file is damaged: the checksum of the entry {entry!r} is wrong")
        return content
