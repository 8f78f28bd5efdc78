"""Prints a digest of every result of the programs of tools/kernels/verify.py, by the kernels of one file.

    python -m tests.support.bits FILE [PROGRAM ...]

Two files are for two levels of processors; with code for aarch64 the kernels run on an emulated one (emulated.py).
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library, target
from tests.support import emulated
from tools.kernels import verify


def use(file: Path) -> None:
    """Has this process run the kernels of a file."""
    image = library.Image(str(file))
    level = image.head["level"]
    if level in target.here():
        target.use(level)
        library.image = lambda: image  # type: ignore[assignment]
    else:
        emulated.use(file)


def kernels_of(program: str) -> dict[str, Any]:
    """Returns the kernels that a program of `verify` is for, by name."""
    names = dict.fromkeys(row.kernel for row in table.ROWS if row is not table.WAITING)
    return {
        name: library.load(name)
        for name in names
        if name == program or (name.rpartition(".")[0] == program and name not in verify.PROGRAMS)
    }


def digest(found: np.ndarray) -> str:
    return hashlib.sha256(np.where(np.isnan(found), np.nan, found).tobytes()).hexdigest()[:12]


def main(file: str, *programs: str) -> int:
    use(Path(file))
    for program in programs or [name for name in verify.PROGRAMS if name != "runtime.spin"]:
        with verify.only(kernels_of(program)):
            for n, result in enumerate(verify._results(verify.PROGRAMS[program])):
                print(program, n, digest(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
