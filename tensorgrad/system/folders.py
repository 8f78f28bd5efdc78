"""The user's folders. They may not exist: users in containers often have no home folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache", "home"]


def home() -> Path | None:
    """Returns the user's home folder, which need not exist; None if the system defines none.

    >>> from tensorgrad.system import folders
    >>> folders.home() is None or folders.home().is_absolute()
    True
    """
    try:
        found = Path.home()
    except (RuntimeError, KeyError):  # HOME is not set, and the user is not in the user database
        return None
    return found if found.is_absolute() else None  # HOME=here would change with the working directory


def cache(system: bool = True) -> Path | None:
    """Returns the folder for cached files: `$XDG_CACHE_HOME` or `~/.cache`; None if the system defines none.

    With `system`, Windows and macOS use their own cache folders.

    >>> from tensorgrad.system import folders
    >>> folders.cache() is None or folders.cache().is_absolute()
    True
    """
    if system and sys.platform in ("win32", "darwin"):
        given, below = (os.environ.get("LOCALAPPDATA"), "") if sys.platform == "win32" else (None, "Library/Caches")
    else:
        given, below = os.environ.get("XDG_CACHE_HOME"), ".cache"
    if given and os.path.isabs(given):  # the XDG specification says to ignore relative paths
        return Path(given)
    base = home()
    return None if base is None else base / below
