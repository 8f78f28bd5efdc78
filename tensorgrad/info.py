"""Prints what this installation consists of and what it has cached.

python -m tensorgrad.info
"""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata


def versions() -> list[str]:
    """Returns the optional and required packages with their versions, or "not installed"."""
    found = []
    for name in ("numpy", "numba", "llvmlite", "threadpoolctl", "ml_dtypes"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return found


def _times(seconds: dict[str, float]) -> str:
    """Describes the processor seconds that compilation took, in all and by stage."""
    stages = ", ".join(f"{stage} {taken:.1f}" for stage, taken in seconds.items())
    return f"{sum(seconds.values()):.1f} s of processor time ({stages})"


def kernels() -> list[str]:
    """Describes the cache of compiled kernels: its folder, contents, size and size limit."""
    from tensorgrad.kernels.numba import table
    from tensorgrad.kernels.numba.runtime import cache

    folder = cache.folder()
    if folder is None:
        return ["no folder (there is no home folder; set TENSORGRAD_CACHE)"]
    files = cache.files(folder)
    total = sum(size for _, size, _ in files)
    lines = [f"{folder}: {len(files)} files, {total / 2**20:.1f} MiB of at most {cache.MOST >> 20}"]
    if not table.wanted():
        return [*lines, "not used: the package numba is not installed, or TENSORGRAD_FAST=0"]
    from tensorgrad.kernels.numba.runtime import native

    if native.unusable():
        return [*lines, f"not used: {native.unusable()}"]
    for place in cache.CARRIED:
        count = sum(cache.path(place, row).is_file() for row in {row.kernel.rpartition(".")[0] for row in table.ALL})
        lines.append(f"carried along: {place}, of which {count} files are for this process")
    names: dict[str, set[str]] = {}
    for row in table.ALL:
        family, _, name = row.kernel.rpartition(".")
        names.setdefault(family, set()).add(name)
    now, seconds = time.time(), dict[str, float]()
    for family, wanted in sorted(names.items()):
        library, file = cache.read(family), cache.path(folder, family)
        line = f"{family}: {len(library.proven & wanted)} of {len(wanted)} kernels"
        if file.exists():
            status = file.stat()
            line += f", {status.st_size / 2**10:.0f} KiB, used {(now - status.st_mtime) / 86400:.0f} days ago"
            line += f"; {len(library.parts)} functions, compiled in {_times(library.seconds)}"
            for stage, taken in library.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + taken
        lines.append(line)
        lines += [f"  not used: {f['kernel']}: {f['reason']}" for f in cache.failures(family, folder)]
    if seconds:
        lines.append(f"all families: compiled in {_times(seconds)}")
    others = [size for file, size, _ in files if file not in {cache.path(folder, family) for family in names}]
    if others:
        lines.append(f"other versions and processors: {len(others)} files, {sum(others) / 2**20:.1f} MiB")
    return lines


def main() -> int:
    """Prints the report."""
    import tensorgrad as torch

    print(f"tensorgrad {torch.version.tensorgrad}, after PyTorch {torch.__version__}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} processors")
    print(", ".join(versions()))
    print(f"threads: {torch.get_num_threads()}")
    print("compiled kernels:")
    for line in kernels():
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
