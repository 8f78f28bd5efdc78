"""Tests that kernels work in this process, before the first one is used: a small one is compared with NumPy.

Each kernel was compared when it was compiled, but on another machine. This shows that arguments arrive and results are
visible here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled.runtime import library
from tensorgrad.kernels.compiled.runtime.unsuited import Unsuited

_SIZE = 64


def failure(probe: Any) -> str:
    """Returns what is wrong as a sentence; "" if nothing. `probe` is that of spin.py."""
    x = np.arange(_SIZE, dtype=np.float32)
    out, gate = np.zeros_like(x), np.zeros(5, np.int64)
    probe.launch(probe.address, (x, out, gate.ctypes.data), _SIZE, 0, 0)
    return "" if np.array_equal(out, x + x) else "a small kernel and NumPy gave different results"


@cache
def _result() -> str:
    try:
        return failure(library.load("runtime.spin.wait").probe)
    except (library.Missing, library.Unusable, Unsuited) as error:
        return str(error)


def check() -> None:
    """Raises: Unusable if no kernel works in this process."""
    if _result():
        raise library.Unusable(_result())
