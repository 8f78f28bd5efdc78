"""The implementation of `torch.save`: a zip archive with a pickle and the storages, or the format before that."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from tensorgrad.serialization import archive, legacy
from tensorgrad.serialization.pickler import Pickler
from tensorgrad.serialization.tables import bytes_of


def write(obj: Any, f: Any, protocol: int, zipped: bool) -> None:
    """Writes to a path or an object with `write`. Raises: see `torch.save`."""
    if isinstance(f, str | os.PathLike):
        if not os.path.isdir(os.path.dirname(os.path.realpath(f))):
            raise RuntimeError(f"Parent directory {os.path.dirname(f) or '.'} does not exist.")
        with archive.replacing(f) as file:
            if zipped:
                _write_archive(obj, file, Path(f).name.partition(".")[0] or "archive", protocol)
            else:
                legacy.write(obj, file, protocol)
    elif hasattr(f, "write"):
        if zipped:
            _write_archive(obj, f, "archive", protocol)
        else:
            legacy.write(obj, f, protocol)
    else:
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, but it is "
            f"{type(f).__name__}"
        )


def _write_archive(obj, file, name: str, protocol: int) -> None:
    text = io.BytesIO()
    pickler = Pickler(text, protocol)
    pickler.dump(obj)  # completely, before the first byte is written
    with archive.Writer(file, name) as writer:
        writer.add("data.pkl", text.getvalue())
        writer.add(".format_version", b"1")
        writer.add(".storage_alignment", str(archive.ALIGNMENT).encode())
        writer.add("byteorder", sys.byteorder.encode())
        for key, storage in pickler.storages.items():
            writer.add(f"data/{key}", bytes_of(storage))
        writer.add("version", b"3\n")
