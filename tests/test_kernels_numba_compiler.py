"""The process that compiles kernels: it fills the cache, ends with the program, and can be done without."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="the package numba is optional: pip install '.[fast]'")

from tensorgrad.kernels.numba import runtime
from tensorgrad.kernels.numba.compiler import Compiler


def test_compiles_into_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path))
    compiler = Compiler()
    try:
        assert runtime.in_cache("pointwise.relu") is False
        assert compiler.compile("pointwise.relu") is True
        assert runtime.in_cache("pointwise.relu") is True
        assert any(tmp_path.rglob("*.nbc"))
        assert compiler.compile("pointwise.no_such_kernel") is False
        assert compiler.compile("pointwise.relu") is True  # the process goes on after a failure
    finally:
        process = compiler.process
        compiler.close()
    assert process.poll() is not None
    compiler.close()  # once more does nothing


def test_no_process_no_harm(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    compiler = Compiler()
    assert compiler.compile("pointwise.relu") is False and compiler.hopeless
    monkeypatch.setattr(sys, "executable", None)
    assert Compiler().hopeless


def test_a_process_that_dies_is_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORGRAD_CACHE", str(tmp_path))
    compiler = Compiler()
    assert compiler.compile("pointwise.relu") is True
    compiler.process.kill()
    compiler.process.wait()
    assert compiler.compile("pointwise.exp") is False and compiler.hopeless
    compiler.close()


@pytest.mark.parametrize("folder", ["usable", "not usable"])
def test_the_program_ends_without_waiting_and_leaves_no_process(folder, tmp_path):
    place = tmp_path / "cache"
    if folder == "not usable":
        place.write_text("a file where the folder should be")
    code = """
import tensorgrad as torch
x = torch.randn(1000, 100)
x.exp(), x.softmax(-1), torch.nn.functional.gelu(x)
import time
from tensorgrad.kernels.numba import runtime
if runtime.in_cache("pointwise.exp") is None:
    runtime.wait()
else:
    time.sleep(1.0)
print(torch.allclose(x.exp(), x.double().exp().float()))
"""
    more = {"TENSORGRAD_CACHE": str(place), "TENSORGRAD_FAST": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command, environment = [sys.executable, "-c", code], os.environ | more
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr  # returns only when nobody holds the pipes any more
    assert "Traceback" not in done.stderr
