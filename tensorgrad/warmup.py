"""Compiles all kernels now, so that no later run waits for one.

    python -m tensorgrad.warmup

They are kept in the user's cache folder (or in TENSORGRAD_CACHE), by versions and processor.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from typing import Any


def main() -> int:
    """Compiles, showing how far it is; 1 if the package numba is missing."""
    from tensorgrad.kernels.numba import runtime, table

    if not table.wanted():
        print("nothing to compile: pip install '.[fast]' (numba), and do not set TENSORGRAD_FAST=0", file=sys.stderr)
        return 1
    rows: Any = table.ROWS
    with contextlib.suppress(ImportError):
        rows = importlib.import_module("tqdm").tqdm(rows, desc="compiling", unit="kernel")
    started = time.perf_counter()
    for row in rows:
        row.asked, row.ready = True, runtime.compiled(row)
    seconds = time.perf_counter() - started
    print(f"{len(table.ROWS)} kernels ready after {seconds:.1f} s, in {runtime.cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
