"""Tests of the CUDA device: on a GPU with DEVICE=cuda, on the emulated one with DEVICE=emulator, else not collected."""

import contextlib
import os

import pytest

MODE = os.environ.get("DEVICE", "cpu")

if MODE == "emulator":
    from tests import emulator

    emulator.install()
elif MODE != "cuda":
    collect_ignore_glob = ["test_*.py"]


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
