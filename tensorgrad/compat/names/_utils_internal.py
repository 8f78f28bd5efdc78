"""`torch._utils_internal`: the paths that tests of libraries ask it for."""

from __future__ import annotations

import os
import tempfile


def get_file_path_2(*path_components: str) -> str:
    """Returns the parts of a path, joined.

    >>> from tensorgrad._utils_internal import get_file_path_2
    >>> get_file_path_2("tests").endswith("tests")
    True
    """
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """Returns the path if it can be written, else a new temporary folder."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))
