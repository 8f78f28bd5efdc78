"""Compiled kernels name no function that the system lacks: for the compiler an unknown name ends the process."""

import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

# The module is imported as on the named system, and every function of the system's that it would call does not exist.
CODE = """
import ctypes, os, sys
import numpy as np
from numba import types
import tensorgrad
from tensorgrad.kernels.numba import compiler
compiler._serving = True
from tensorgrad.kernels.numba import cache, launch, native
known, real, name, library = types.ExternalFunction, ctypes.CDLL, os.name, {library}
types.ExternalFunction = lambda name, signature: known("absent_" + name if name in {absent} else name, signature)
ctypes.CDLL, os.name = (lambda *given, **options: library or real(*given, **options)), {system!r}
from tensorgrad.kernels.numba import waiting
types.ExternalFunction, ctypes.CDLL, os.name = known, real, name
from tensorgrad.kernels.numba import board
library = cache.Library("waiting", "none")
with launch.taking_from(library):
    loops = waiting.KERNELS["wait"]()
assert not any("absent" in name for part in library.parts.values() for name in part.names)
memory = np.zeros(board.SIZE, np.int64)
memory[board.MOVED] = 1 << 62  # just now: on a busy machine the thread does not ask to be moved
assert loops.serve(memory.ctypes.data, 64, 1) == board.IDLE
memory[board.DONE] = board.FINISHED
assert loops.done(memory.ctypes.data, 1)
print("right")
"""
ALL = {"sched_yield", "clock_gettime", "usleep", "sched_getcpu"}


@pytest.mark.parametrize(
    "system, absent, library",
    [("nt", ALL, "None"), ("posix", {"sched_getcpu"}, "object()")],
    ids=["Windows", "macOS"],
)
def test_threads_wait_where_functions_of_the_system_are_missing(system, absent, library, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = CODE.format(system=system, absent=absent, library=library)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "right", done.stderr[-2000:]
