"""Compiles functions for tests, in this process, and loads them as the package loads its kernels. It needs Numba.

python -m tests.support.compiling LEVEL FILE FAMILY ...     a file of some families, for any level
"""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorgrad.kernels.compiled.runtime import library, native, target


@cache
def compiler():
    """Returns what compiles an entry for this process's level; a test that asks for it is skipped without Numba."""
    pytest.importorskip("numba", reason="Numba compiles the kernels: pip install '.[kernels]'")
    from tools.kernels import entries, internals

    internals.compile_for(target.chosen())
    return entries.built


def compiled(function, signature, kind, **options) -> int:
    """Returns the address of a function's machine code."""
    data = compiler()(function, signature, kind, "entry", **options)
    from tools.kernels.link import PAGES, Part, link

    machine = target.current().machine
    made = link({"entry": Part("entry", data)}, machine, carried=False)
    import llvmlite.binding as llvm

    for name in made.imports:  # functions of these tests may use Numba's own
        native.addresses().setdefault(name, llvm.address_of_symbol(name) or 0)
    fixed, moved = np.array(made.fixed, np.int64), np.array(made.moved, np.uint32)
    known = library.image().known("")
    imports = [known[name] for name in made.imports]
    place = library.placed(made.code, fixed, moved, imports, made.written, PAGES[machine])
    return place + made.entries["entry"]


def main(level: str, file: str, *families: str) -> None:
    """Writes a file of some families."""
    os.environ["TENSORGRAD_FAST"] = "0"
    from tools.kernels import compile

    made, _ = compile.compiled(level, families.__contains__)
    compile.write(Path(file), level, {name: compile.packed(*one) for name, one in made.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
