"""A young process: calls that wait for kernels which are being loaded, and what loading imports."""

import threading
import time
from types import SimpleNamespace

import pytest

from tensorgrad.kernels.numba.runtime import background
from tensorgrad.kernels.numba.table import wanted
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(not wanted(), reason="the compiled kernels are not in use")


@pytest.fixture
def row(monkeypatch):
    """A row whose kernel is being loaded; nothing else is."""
    monkeypatch.setattr(background, "_failure", "")  # others are loaded already
    monkeypatch.setattr(background, "_PATIENCE", 2000)  # ten seconds
    monkeypatch.setattr(background, "_compiling", False)
    return SimpleNamespace(ready=None)


def _soon(function) -> threading.Thread:
    thread = threading.Timer(0.03, function)
    thread.start()
    return thread


def test_a_heavy_call_waits_for_its_kernel(row):
    thread = _soon(lambda: setattr(row, "ready", len))
    background.hold(row, 1.0)
    assert row.ready is len
    thread.join()


def test_a_light_call_does_not_wait(row):
    start = time.perf_counter()
    background.hold(row, background._FURTHER / 2)
    assert row.ready is None and time.perf_counter() - start < 5


def test_before_the_first_kernel_only_the_heaviest_wait(row, monkeypatch):
    monkeypatch.setattr(background, "_failure", None)
    background.hold(row, background._FURTHER * 2)  # returns, though the kernel never comes
    assert row.ready is None


def test_nothing_waits_for_a_kernel_that_is_being_compiled(row, monkeypatch):
    thread = _soon(lambda: monkeypatch.setattr(background, "_compiling", True))
    background.hold(row, 1.0)
    assert row.ready is None
    thread.join()


def test_nothing_waits_for_a_kernel_that_failed(row, monkeypatch):
    monkeypatch.setattr(background, "_failed", [row])
    background.hold(row, 1.0)
    assert row.ready is None


def test_waiting_ends(row, monkeypatch):
    monkeypatch.setattr(background, "_PATIENCE", 2)
    background.hold(row, 1.0)
    assert row.ready is None


def test_loading_imports_only_what_it_needs():
    code = """
import sys
import tensorgrad
before = set(sys.modules)
from tensorgrad.kernels.numba.runtime import background, cache, loading
print(*sorted({"subprocess", "tempfile", "shutil", "numba"} & (set(sys.modules) - before)))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
