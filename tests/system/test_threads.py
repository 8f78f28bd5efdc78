"""The library's own threads: Python's list of threads has only the program's."""

import os
import threading
import time

import pytest

from tensorgrad.system import threads
from tests.support.processes import output_of

PROGRAM = """
import threading
import numpy as np
import tensorgrad as torch
from tensorgrad.system.threads import NAMES
x = torch.ones(1_000_000)
for _ in range(20):
    y = x.exp() + x
print(sorted(set(NAMES.values()) & {"tensorgrad memory", "tensorgrad compiler"}))
print(threading.enumerate() == [threading.main_thread()])
"""


def test_ops_leave_no_threads_that_a_program_could_find():
    names, alone = output_of(PROGRAM, timeout=120).splitlines()
    assert alone == "True"
    if threads.NAMES:  # this process has used ops, so its allocator is one that can be watched
        assert "tensorgrad" in names


def test_a_thread_is_named_and_alive_while_it_runs():
    gate = threading.Lock()
    gate.acquire()
    thread = threads.start("a test", gate.acquire)
    assert "a test" in threads.NAMES.values() and thread.alive
    gate.release()
    end = time.monotonic() + 30
    while thread.alive and time.monotonic() < end:
        time.sleep(0.001)
    assert not thread.alive and "a test" not in threads.NAMES.values()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_none():
    program = """
import os
from tensorgrad.system import threads
import time
threads.start("a test", time.sleep, 600)
pid = os.fork()
if pid == 0:
    os._exit(len(threads.NAMES))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), list(threads.NAMES.values()))
"""
    assert output_of(program).strip() == "0 ['a test']"
