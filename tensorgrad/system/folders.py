"""The user's folders. There may be none: a container's user often has no home."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache", "home"]


def home() -> Path | None:
    """The user's home folder, which need not exist; None if the system names none.

    >>> from tensorgrad.system import folders
    >>> folders.home() is None or folders.home().is_absolute()
    True
    """
    try:
        found = Path.home()
    except (RuntimeError, KeyError):  # no HOME, and a user who is in no list of users
        return None
    return found if found.is_absolute() else None  # HOME=here would be another one after each change of the folder


def cache(system: bool = True) -> Path | None:
    """The folder for what can be made again: `$XDG_CACHE_HOME` or `~/.cache`; None if the system names none.

    `system`: on Windows and macOS, where these have a place for it, that.

    >>> from tensorgrad.system import folders
    >>> folders.cache() is None or folders.cache().is_absolute()
    True
    """
    if system and sys.platform in ("win32", "darwin"):
        given, below = (os.environ.get("LOCALAPPDATA"), "") if sys.platform == "win32" else (None, "Library/Caches")
    else:
        given, below = os.environ.get("XDG_CACHE_HOME"), ".cache"
    if given and os.path.isabs(given):  # the XDG specification: a relative one is to be ignored
        return Path(given)
    base = home()
    return None if base is None else base / below
