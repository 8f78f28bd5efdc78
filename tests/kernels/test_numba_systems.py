"""Compiled kernels call no function that the system lacks."""

import time

import pytest

from tests.support.kernels import absent
from tests.support.processes import environment, run_python

if absent():
    pytest.skip(absent(), allow_module_level=True)

from tensorgrad.kernels.compiled.runtime import native

CODE = """
import ctypes
import numpy as np
from tensorgrad.kernels.compiled.runtime import native
known = native.addresses()
for name in {absent}:  # a call would end the process
    known[name] = 0
native.system_numbers()[:] = {numbers}
from tensorgrad.kernels.compiled.runtime import library, mailbox
loops = library.load("runtime.spin.wait")
memory = np.zeros(mailbox.SIZE, np.int64)
memory[mailbox.MIGRATED] = 1 << 62  # just now: on a busy machine the thread does not ask to be moved
assert loops.serve(memory.ctypes.data, 16_000, 1) == mailbox.IDLE
memory[mailbox.DONE] = mailbox.FINISHED
assert loops.done(memory.ctypes.data, 1)
print("right")
"""


@pytest.mark.parametrize(
    "numbers, absent",
    [([-1, 0, 0, 0], native.IF_THERE), ([time.CLOCK_MONOTONIC, 1, 0, 0], ("sched_getcpu", "sem_wait", "sem_post"))],
    ids=["Windows", "macOS"],
)
def test_threads_wait_where_functions_of_the_system_are_missing(numbers, absent):
    done = run_python(CODE.format(numbers=numbers, absent=absent))
    assert done.stdout.strip() == "right", done.stderr[-2000:]


def test_a_free_threaded_python_is_told_that_numpy_serves():
    code = """
import sys
sys.abiflags += "t"
import tensorgrad as torch
x = torch.linspace(0, 1, 100_000).exp()
assert torch.allclose(x.log(), torch.linspace(0, 1, 100_000), atol=1e-6)
from tensorgrad.kernels.compiled import table
assert not any(row.ready for row in table.ROWS)
"""
    done = run_python(code, env=environment("TENSORGRAD_FAST"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no compiled kernels in a free-threaded Python") == 1
