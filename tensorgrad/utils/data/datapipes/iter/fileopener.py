"""The datapipe that opens files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import get_file_binaries_from_pathnames

__all__ = ["FileOpenerIterDataPipe"]


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe):
    """Yields pairs of a path and the open file (method `open_files` of a datapipe of paths).

    Args:
        datapipe: The paths.
        mode: How to open them: "r", "rb", "rt", "b" or "t".
        encoding: The encoding of texts.
        length: The number of files, if it is known: `len` says it.

    Raises:
        ValueError: If the mode is another one, or a binary one with an encoding.

    >>> import pathlib, tempfile
    >>> from tensorgrad.utils.data.datapipes.iter import FileLister
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.txt").write_text("hello")
    ...     [file.read() for path, file in FileLister(folder).open_files()]
    ['hello']
    """

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
