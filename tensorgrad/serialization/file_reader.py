"""`torch.PyTorchFileReader`: reads the entries of a file that `torch.save` wrote, one by one."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

import numpy as np


class PyTorchFileReader:
    """Reads the entries ("records") of PyTorch's zip archives. Nothing in them is executed or unpacked.

    Args:
        name_or_buffer: a path, or a file opened for reading bytes.

    Raises:
        RuntimeError: If it is not such an archive.

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2)}, file)
    >>> reader = torch.PyTorchFileReader(file)
    >>> reader.has_record("data.pkl"), len(reader.get_record("data/0"))
    (True, 8)
    """

    def __init__(self, name_or_buffer: Any):
        from tensorgrad.serialization import archive  # not at the top: `import tensorgrad` loads this file

        file = name_or_buffer
        if not hasattr(file, "read"):
            file = open(file, "rb")  # noqa: SIM115
            weakref.finalize(self, file.close)
        with _as_reader_error("reading zip archive"):
            self._reader = archive.Reader(file)

    def _check(self, name: str) -> None:
        if not self._reader.has(name):
            folder = self._reader.prefix.removesuffix("/")
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found (archive {folder!r})")

    def get_all_records(self) -> list[str]:
        """Returns the names of all entries."""
        return [name.partition("/")[2] for name in self._reader.entries]

    def has_record(self, name: str) -> bool:
        """Returns whether there is such an entry."""
        return self._reader.has(name)

    def _content(self, name: str) -> np.ndarray:
        self._check(name)
        with _as_reader_error(f"reading file {name}"):
            return self._reader.read(name)

    def get_record(self, name: str) -> bytes:
        """Returns the content of an entry. Raises: RuntimeError if there is none, or it is damaged."""
        return self._content(name).tobytes()

    def get_record_size(self, name: str) -> int:
        """Returns the number of bytes of an entry."""
        self._check(name)
        return self._reader.size(name)

    def get_record_header_offset(self, name: str) -> int:
        """Returns where the header of an entry begins in the file."""
        self._check(name)
        return self._reader.entries[self._reader.prefix + name].offset

    def get_record_offset(self, name: str) -> int:
        """Returns where the content of an entry begins in the file."""
        self._check(name)
        with _as_reader_error(f"reading file {name}"):
            return self._reader.start(name)

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """Returns a tensor without elements whose storage is an entry: `numel` elements of a dtype, or bytes.

        Raises:
            RuntimeError: If the entry is smaller.
        """
        import tensorgrad as torch

        dtype = dtype if isinstance(dtype, torch.dtype) else torch.uint8
        content = self._content(name)
        if content.size < numel * dtype.itemsize:
            raise RuntimeError(
                f"record {name} has {content.size} bytes, fewer than {numel} elements of {dtype} take up"
            )
        return torch.from_numpy(content[: numel * dtype.itemsize]).view(dtype)[:0]

    def serialization_id(self) -> str:
        """Returns the checksum that PyTorch writes into the file; nothing if there is none."""
        name = ".data/serialization_id"
        return self.get_record(name).decode() if self.has_record(name) else ""


@contextlib.contextmanager
def _as_reader_error(what: str) -> Iterator[None]:
    """Raises PyTorch's RuntimeError in place of UnpicklingError."""
    try:
        yield
    except UnpicklingError as error:
        raise RuntimeError(f"PytorchStreamReader failed {what}: {error}") from None
