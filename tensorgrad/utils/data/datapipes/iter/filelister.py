"""The datapipe of the files in folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorgrad.utils.data.datapipes._decorator import functional_datapipe
from tensorgrad.utils.data.datapipes.datapipe import IterDataPipe
from tensorgrad.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe
from tensorgrad.utils.data.datapipes.utils.common import get_file_pathnames_from_root

__all__ = ["FileListerIterDataPipe"]


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe):
    """Yields the paths of the files in folders (method `list_files` of a datapipe of folders).

    Args:
        root: A folder, a list of folders, or a datapipe of folders.
        masks: A pattern that names must match, such as "*.txt", or several.
        recursive: Whether also those in the folders within.
        abspath: Whether the paths are absolute.
        non_deterministic: Whether they come in the order of the system, rather than sorted in each folder.
        length: The number of files, if it is known: `len` says it.

    >>> import pathlib, tempfile
    >>> from tensorgrad.utils.data.datapipes.iter import FileLister
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.txt", "a.txt", "c.csv"):
    ...         pathlib.Path(folder, name).touch()
    ...     [pathlib.Path(path).name for path in FileLister(folder, "*.txt")]
    ['a.txt', 'b.txt']
    """

    def __init__(
        self,
        root: Any = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        if isinstance(root, str):
            root = [root]
        self.datapipe = root if isinstance(root, IterDataPipe) else IterableWrapperIterDataPipe(root)
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for folder in self.datapipe:
            yield from get_file_pathnames_from_root(
                folder, self.masks, self.recursive, self.abspath, self.non_deterministic
            )

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length
