"""Tests that kernels work in this process: a small one runs alone and on two threads, compared with NumPy.

Each kernel was compared when it was compiled (verify.py), but in another process, perhaps long ago. Before the first
one is used here, this test shows that arguments arrive, that a thread takes its range from the mailbox, and that its
results are visible.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tensorgrad.kernels.numba.runtime import mailbox
from tensorgrad.system import threads

_SIZE = 64
_PATIENCE = 100_000  # nanoseconds that the second thread waits for its first task, and then for another


def failure(loops: Any) -> str:
    """Returns what is wrong as a sentence; "" if nothing. `loops` are those of spin.py."""
    x = np.arange(_SIZE, dtype=np.float32)
    out, gate = np.zeros_like(x), np.zeros(5, np.int64)
    arguments, probe = (x, out, gate.ctypes.data), loops.probe
    probe.launch(probe.address, arguments, _SIZE, 0, 0)
    if not np.array_equal(out, x + x):
        return "a small kernel and NumPy gave different results"
    out[...] = 0
    box = mailbox.allocate(loops.divide.address, _PATIENCE)
    box[mailbox.MOVED] = 1 << 62  # just now, so that it does not ask to be moved on a busy machine
    address = box.ctypes.data

    def serve() -> None:
        loops.serve(box.ctypes.data, _PATIENCE, 0)  # it also keeps that memory alive

    try:
        thread = threads.start("tensorgrad test", serve)
    except RuntimeError:  # the system has no threads left: then none will share kernels
        return ""
    happened = probe.launch(probe.address, arguments, _SIZE, address, 1)
    while happened & mailbox.LATE and thread.alive:
        time.sleep(0.001)
    if happened & mailbox.WRONG or not np.array_equal(out, x + x):
        return "a small kernel on two threads and NumPy gave different results"
    return ""
