"""Compiled kernels name no function that the system lacks: for the compiler an unknown name ends the process."""

import re
import time

import numpy as np
import pytest

from tests.support.processes import environment, run_python

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

import llvmlite.binding as llvm
from llvmlite import ir

from tensorgrad.kernels.numba import table
from tensorgrad.kernels.numba.runtime import background, mailbox, spin

# The module is imported as on the named system, and every function of the system's that it would call does not exist.
CODE = """
import ctypes, os, sys
import numpy as np
from numba import types
import tensorgrad
from tensorgrad.kernels.numba.runtime import compiler
compiler.serving = True
from tensorgrad.kernels.numba.runtime import cache, launch, native
known, real, name, library = types.ExternalFunction, ctypes.CDLL, os.name, {library}
types.ExternalFunction = lambda name, signature: known("absent_" + name if name in {absent} else name, signature)
ctypes.CDLL, os.name = (lambda *given, **options: library or real(*given, **options)), {system!r}
from tensorgrad.kernels.numba.runtime import spin
types.ExternalFunction, ctypes.CDLL, os.name = known, real, name
from tensorgrad.kernels.numba.runtime import mailbox
library = cache.Library("runtime.spin", "none")
with launch.taking_from(library):
    loops = spin.KERNELS["wait"]()
assert not any("absent" in name for part in library.parts.values() for name in part.names)
memory = np.zeros(mailbox.SIZE, np.int64)
memory[mailbox.MOVED] = 1 << 62  # just now: on a busy machine the thread does not ask to be moved
assert loops.serve(memory.ctypes.data, 16_000, 1) == mailbox.IDLE
memory[mailbox.DONE] = mailbox.FINISHED
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
    done = run_python(code)
    assert done.stdout.strip() == "right", done.stderr[-2000:]


@pytest.mark.parametrize(
    "machine, triple, instruction",
    [
        ("x86_64", "x86_64-unknown-linux-gnu", "pause"),
        ("AMD64", "x86_64-pc-windows-msvc", "pause"),
        ("aarch64", "aarch64-unknown-linux-gnu", "isb"),
        ("arm64", "arm64-apple-darwin", "isb"),
        ("ARM64", "aarch64-pc-windows-msvc", "isb"),
        ("riscv64", "x86_64-unknown-linux-gnu", None),
    ],
)
def test_a_loop_that_waits_tells_the_processor(machine, triple, instruction, monkeypatch):
    """In that processor's own instruction: a wrong one would be an error of the compiler, or end the process."""
    monkeypatch.setattr(spin, "ir", ir)  # in a program that compiles nothing it is a placeholder
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    builder = ir.IRBuilder(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "wait").append_basic_block())
    spin.pause(builder, machine)
    builder.ret_void()
    made = llvm.Target.from_triple(triple).create_target_machine()
    text = made.emit_assembly(llvm.parse_assembly(str(module)))
    assert re.findall(r"^\s+(pause|isb|yield)\b", text, re.M) == ([instruction] if instruction else [])


@pytest.mark.parametrize("limit", [0, 1_000_000, 20_000_000])
def test_threads_wait_by_the_clock(limit):
    """However long this processor pauses. What others have of it meanwhile does not count, so it may be more."""
    loops, memory = background.compiled(table.WAITING.kernel), np.zeros(mailbox.SIZE, np.int64)
    memory[mailbox.MOVED] = 1 << 62
    for wait in (lambda: loops.done(memory.ctypes.data, limit), lambda: loops.serve(memory.ctypes.data, limit, 0)):
        before, used = time.perf_counter_ns(), time.thread_time_ns()
        assert not wait()
        assert time.perf_counter_ns() - before >= limit
        assert time.thread_time_ns() - used <= 2 * limit + 5_000_000


def test_a_free_threaded_python_is_told_that_numpy_serves():
    code = """
import sys
sys.abiflags += "t"
import tensorgrad as torch
x = torch.linspace(0, 1, 100_000).exp()
assert torch.allclose(x.log(), torch.linspace(0, 1, 100_000), atol=1e-6)
from tensorgrad.kernels.numba import table
assert not any(row.asked for row in table.ALL)
"""
    done = run_python(code, env=environment("TENSORGRAD_FAST"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no compiled kernels in a free-threaded Python") == 1
