"""The CUDA device without a GPU: tests/cuda, run once in a process of its own on the emulated one (tests/emulator).

In a process of its own, since there `cupy` is the emulator and the device "cuda" exists. With DEVICE=cuda the same
tests are collected where they are, and run on the GPU.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.once import once

ROOT = Path(__file__).parents[2]

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytestmark = [
    pytest.mark.skipif(
        "DEVICE" in os.environ and os.environ["DEVICE"] != "cpu", reason="tests/cuda is collected itself"
    ),
    once,
    pytest.mark.slow,
    pytest.mark.timeout(2000),  # all tests of a folder
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator compiles CUDA C with g++"),
]


def emulated(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """pytest with these arguments, on the emulated GPU."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "DEVICE": "emulator", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=1900,
    )


def test_everything_on_two_gpus():
    run = emulated("tests/cuda", EMULATED_GPUS="2")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


def test_training_on_one_gpu():
    """Where there is one GPU, nothing asks which one is meant: another way through the dispatch."""
    run = emulated("tests/cuda/test_nn.py", "tests/cuda/test_autograd.py", EMULATED_GPUS="1")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
