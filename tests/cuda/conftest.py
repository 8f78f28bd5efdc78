"""Tests of the CUDA device: on a GPU with DEVICE=cuda, on the emulated one with DEVICE=emulator, else not collected.

On the emulated GPU a case runs with two of its dtypes, since each program is compiled for the CPU first, in a second.
`make gpu` and EVERY_DTYPE=1 run them all.
"""

import contextlib
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent

MODE = os.environ.get("DEVICE", "cpu")

if MODE == "emulator":
    from tests import emulator

    emulator.install()
elif MODE != "cuda":
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(config, items):
    """Keeps the first dtype of each case and one of the others, in turn, so that every dtype runs somewhere."""
    if MODE != "emulator" or "EVERY_DTYPE" in os.environ:
        return
    cases: dict = {}
    for item in items:
        given = getattr(item, "callspec", None)
        if item.path.parent == HERE and given is not None and "dtype" in given.params:
            rest = tuple(f"{name}={value}" for name, value in given.params.items() if name != "dtype")
            cases.setdefault((item.path, item.originalname, rest), []).append(item)
    left = set()
    for number, dtypes in enumerate(cases.values()):
        others = dtypes[1:]
        left |= {id(item) for item in others if item is not others[number % len(others)]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
    items[:] = [item for item in items if id(item) not in left]


@pytest.fixture(scope="session")
def device():
    """The device that these tests run on, as tensors name it."""
    return "cuda"


@contextlib.contextmanager
def _nothing_copied():
    import cupyx

    import tensorgrad

    tensorgrad.cuda.set_sync_debug_mode("error")
    try:
        with cupyx.allow_synchronize(False):  # what does not pass through CUDAStorage.to_host: item(), bool(), …
            yield
    finally:
        tensorgrad.cuda.set_sync_debug_mode("default")


@pytest.fixture
def nothing_copied():
    """A context in which every wait of the host for the GPU raises: to prove that no step hides one."""
    return _nothing_copied


@pytest.fixture(autouse=True, scope="session")
def full_precision():
    """Convolutions in float32 as it is: PyTorch, and tensorgrad after it, rounds to TF32 unless told otherwise."""
    from tensorgrad.kernels.cuda.runtime import switches

    switches.cudnn.allow_tf32 = False
