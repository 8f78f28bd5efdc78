"""Helpers of datapipes: functions that are given to them, files, and open streams."""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]


def validate_input_col(fn: Callable, input_col: Any) -> None:
    """Raises a ValueError if a function cannot be called with as many arguments as there are input columns.

    >>> from tensorgrad.utils.data.datapipes.utils.common import validate_input_col
    >>> validate_input_col(lambda a, b: a, [0, 1])
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):  # a built-in function
        return
    given = len(input_col) if isinstance(input_col, list | tuple) else 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    by_name = sum(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    name = getattr(fn, "__name__", repr(fn))
    if by_name:
        raise ValueError(
            f"The function {name} takes {by_name} non-default keyword-only parameters, which is not allowed."
        )
    if given < needed:
        raise ValueError(f"The function {name} takes {needed} positional parameters, but {given} are required.")
    if given > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ValueError(f"The function {name} takes {len(positional)} parameters, but {given} are required.")


def _check_unpickable_fn(fn: Callable) -> None:
    """Raises if something is not a function; warns if it cannot be pickled, which workers may need."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    while isinstance(fn, functools.partial):
        fn = fn.func
    local = "<locals>" in getattr(fn, "__qualname__", "")
    unnamed = getattr(fn, "__name__", "") == "<lambda>"
    if (local or unnamed) and inspect.isfunction(fn) and importlib.util.find_spec("dill") is None:
        warnings.warn(
            f"{'Local' if local else 'Lambda'} function is not supported by pickle, please use regular python function "
            "or functools.partial instead.",
            stacklevel=4,
        )


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Returns whether a file's name matches one of the patterns; the empty pattern matches all.

    >>> from tensorgrad.utils.data.datapipes.utils.common import match_masks
    >>> match_masks("a.txt", ["*.csv", "*.txt"])
    True
    """
    patterns = [masks] if isinstance(masks, str) else masks
    return not masks or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def get_file_pathnames_from_root(
    root: str, masks: str | list[str], recursive: bool = False, abspath: bool = False, non_deterministic: bool = False
) -> Iterator[str]:
    """Yields the files in a folder whose names match, in alphabetical order; of a file, itself."""

    def failed(error: OSError) -> None:
        warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=2)
        raise error

    if os.path.isfile(root):
        if match_masks(os.path.basename(root), masks):
            yield os.path.abspath(root) if abspath else root
        return
    for folder, folders, files in os.walk(root, onerror=failed):
        folder = os.path.abspath(folder) if abspath else folder
        if not non_deterministic:
            files.sort()
            folders.sort()
        yield from (os.path.join(folder, name) for name in files if match_masks(name, masks))
        if not recursive:
            return


def get_file_binaries_from_pathnames(
    pathnames: Iterable[str], mode: str, encoding: str | None = None
) -> Iterator[tuple[str, Any]]:
    """Yields the files of these names, opened, with their names."""
    if mode in ("b", "t"):
        mode = "r" + mode
    for name in [pathnames] if isinstance(pathnames, str) else pathnames:
        if not isinstance(name, str):
            raise TypeError(f"Expected string type for pathname, but got {type(name)}")
        yield name, StreamWrapper(open(name, mode, encoding=encoding))  # noqa: SIM115


def validate_pathname_binary_tuple(data: Any) -> None:
    """Raises a TypeError unless something is a pair of a file's name and an open file."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    if not isinstance(data[0], str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(data[0])}")
    if not hasattr(data[1], "read"):
        raise TypeError(
            "binary stream within the tuple should have IOBase or its subclasses as type, but it is type "
            f"{type(data[1])}"
        )


class StreamWrapper:
    """An open file, which is closed when nothing refers to it.

    Args:
        file_obj: The file.
        parent_stream: What it is read from, such as an archive, if anything.
        name: What it is called, if anything.
    """

    def __init__(self, file_obj: Any, parent_stream: Any = None, name: str | None = None) -> None:
        self.file_obj, self.name, self.closed = file_obj, name, False

    @classmethod
    def close_streams(cls, v: Any, depth: int = 0) -> None:
        """Closes the streams in lists, tuples and dictionaries."""
        if depth > 10:
            return
        if isinstance(v, StreamWrapper):
            v.close()
        elif isinstance(v, dict | list | tuple):
            for inner in v.values() if isinstance(v, dict) else v:
                cls.close_streams(inner, depth + 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Closes the file."""
        self.file_obj.close()
        self.closed = True

    autoclose = close

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *dir(self.file_obj)]

    def __del__(self) -> None:
        file = self.__dict__.get("file_obj")
        if file is not None and not self.closed:
            file.close()

    def __iter__(self) -> Iterator:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        return f"StreamWrapper<{self.file_obj!r}>" if self.name is None else f"StreamWrapper<{self.name}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, state: Any) -> None:
        self.__init__(state)  # type: ignore[misc]
