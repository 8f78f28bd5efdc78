"""What WebAssembly lacks is taken away from this interpreter: the package must not ask for it.

tests/wasm/test_wasm.py runs the same programs in WebAssembly itself, where it is installed.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import environment
from tests.wasm.programs import PROGRAMS
from tests.wasm.test_wasm import ROOT, results

# NumPy and the interpreter's own modules are imported before, as they have versions of their own for WebAssembly.
WITHOUT = """
import asyncio, concurrent.futures, importlib.util, inspect, os, pdb, platform, subprocess, sys, tempfile, threading
import unittest.mock, types, zoneinfo
import numpy, numpy.ctypeslib
from tests.wasm import programs

# There are types, and nothing to call.
class Type(type):
    def __mul__(kind, size):
        return Type("Array", (Array,), {})
class Data(metaclass=Type):
    def __init__(self, value=0):
        self.value = value
class Array(metaclass=Type):
    def __init__(self, *values):
        refused()
def refused(*args, **kwargs):
    raise OSError("ctypes is unavailable")
def derived(*kinds):
    return Type("Derived", (Data,), {})
import ctypes as real
absent = types.ModuleType("ctypes")
for name in dir(real):
    if name in ("Structure", "Union") or name.startswith("c_"):
        setattr(absent, name, Type(name, (Data,), {}))
    elif name in ("CFUNCTYPE", "POINTER", "PYFUNCTYPE"):
        setattr(absent, name, derived)
    elif callable(getattr(real, name)) and name != "py_object":
        setattr(absent, name, refused)

MODULES = "_ctypes _multiprocessing _posixshmem _posixsubprocess _ssl fcntl grp pwd resource ssl termios".split()
MODULES += "llvmlite ml_dtypes numba scipy threadpoolctl torch".split()
for name in [name for name in sys.modules if name.partition(".")[0] in [*MODULES, "ctypes"]]:
    del sys.modules[name]
class Absent:
    def find_spec(name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.modules["ctypes"] = absent
sys.meta_path.insert(0, Absent)
for name in "fchmod fork getppid getuid kill register_at_fork sched_getaffinity umask".split():
    delattr(os, name)
def start(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
sys.platform = "wasi"
platform.machine = lambda: "wasm32"
programs.main()
"""


@pytest.fixture(scope="module")
def made() -> dict[str, dict]:
    given = {**environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=given, cwd=ROOT)
    assert not done.returncode, done.stderr[-3000:]
    return results(done.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(name, made):
    assert "error" not in made[name], made[name]["error"]


def test_every_module_can_be_imported(made):
    assert made["modules_that_cannot_be_imported"]["result"] == []
