"""Tells in one line where disk or memory is too small for what follows, before that fails half-way.

python tools/space.py GIGABYTES FOLDER ...     exit status 1 if there is less in one of the folders
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


def lack(gigabytes: float, folders: Iterable[Path]) -> str | None:
    """Returns what is missing, in one line; None if all folders have enough free space. They need not exist yet."""
    for folder in folders:
        present = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(present).free / 1e9
        if free < gigabytes:
            return f"this needs {gigabytes:g} GB of free disk space in {folder}; there are {free:.1f} GB"
    return None


def lack_of_memory(gigabytes: float, meminfo: Path = Path("/proc/meminfo")) -> str | None:
    """Returns how much memory is missing, in one line; None if there is enough, or the system does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE) if meminfo.exists() else None
    if found and int(found[1]) * 1024 < gigabytes * 1e9:
        return f"this needs {gigabytes:g} GB of memory; {int(found[1]) * 1024 / 1e9:.1f} GB are available"
    return None


if __name__ == "__main__":
    missing = lack(float(sys.argv[1]), map(Path, sys.argv[2:]))
    sys.exit(missing)
