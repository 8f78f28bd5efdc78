"""What every test shares: the device under test, one thread each, and property tests that repeat exactly."""

import contextlib
import importlib.util
import multiprocessing.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import pytest

from tests.support import device as on_device

HAS_TORCH = importlib.util.find_spec("torch") is not None

# Read by the BLAS when NumPy is first imported. Small tests gain nothing from threads, and two pools on few cores lose.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

on_device.install()

# Derandomized, so that a failure is the change's and not the day's; without a deadline, since machines differ.
hypothesis.settings.register_profile(
    "tensorgrad",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.differing_executors],
)
hypothesis.settings.load_profile("tensorgrad")


def pytest_configure(config):
    from tensorgrad.settings import SETTINGS

    _delete_temporary_files_at_exit()
    stubs = Path(__file__).parents[1] / "tensorgrad" / "_stubs"
    if stubs.exists() and not (stubs / "methods.pyi").exists():  # a fresh checkout: `make test` writes them, too
        subprocess.run([sys.executable, "-m", "tensorgrad._stubs"], cwd=stubs.parents[1], check=True)

    SETTINGS.threads = 2  # compiled kernels do share their work, on whatever machine
    if HAS_TORCH:
        import torch

        torch.set_num_threads(1)


def _delete_temporary_files_at_exit():
    """Of this process and those that it starts, all that is written to the temporary folder except `tmp_path`."""
    os.environ.setdefault(
        "PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()
    )  # where pytest keeps `tmp_path` of failed tests
    for left in Path(tempfile.gettempdir()).glob("pytest-[0-9]*-*"):  # of processes that were killed
        number = left.name.split("-")[1]
        if number.isdigit() and not _runs(int(number)) and _age(left) > 3600:
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"pytest-{os.getpid()}-")
    # Last: multiprocessing deletes a folder of its own inside.
    multiprocessing.util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=-1000)
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder))
    tempfile.tempdir = folder


def _age(folder: Path) -> float:
    """The seconds since something was added to a folder; 0 if another process has just deleted it."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def _runs(process: int) -> bool:
    """Whether a process of this number runs. (On Windows, asking would end it.)"""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def pytest_report_header(config):
    compared = "compared with torch" if HAS_TORCH else "torch is absent: nothing is compared with it"
    return f"tensorgrad: DEVICE={os.environ.get('DEVICE', 'cpu')}, {compared}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that ends because torch has no kernel for this processor is skipped, with torch's reason."""
    from tests.support.alike import no_kernel

    try:
        result = yield
        if _runs_on_device(item):
            on_device.wait()
        return result
    except RuntimeError as error:
        if no_kernel(error):
            pytest.skip(f"torch cannot do this on this machine: {error}")
        raise


# --- with DEVICE=cuda or DEVICE=emulator: see tests/support/device.py ------------------------------------------------


def pytest_ignore_collect(collection_path):
    """With DEVICE, the folders whose tests have nothing to do with it are left out."""
    folder = on_device.folder_of(collection_path)
    if on_device.ON_DEVICE and folder and folder not in (*on_device.FOLDERS, *on_device.ABOUT_GPUS):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """What a module makes when it is imported is on the device, too."""
    if not on_device.ON_DEVICE or on_device.folder_of(collector.path) not in on_device.FOLDERS:
        return (yield)
    with on_device.tensors_there():
        return (yield)


def _runs_on_device(item) -> bool:
    return on_device.ON_DEVICE and on_device.folder_of(item.path) in on_device.FOLDERS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    reason = on_device.reason_to_skip(item.nodeid) if on_device.ON_DEVICE else None
    if reason is not None:
        item.add_marker(pytest.mark.skip(reason=reason))
    if not _runs_on_device(item):
        return (yield)
    with on_device.tensors_there():
        result = yield
        with contextlib.suppress(IndexError):  # of a test that has failed already
            on_device.wait()
        return result


LOST: list[str] = []  # the test after which the GPU did not work any more


def pytest_runtest_logstart(nodeid):
    """Once an access was out of bounds, nothing works on a GPU in this process; of pytest-xdist's, another goes on."""
    if LOST and "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(3)
    if LOST:
        pytest.exit(f"the GPU does not work any more since {LOST[0]}")


def pytest_runtest_logfinish(nodeid):
    if on_device.DEVICE == "cuda" and not LOST and not on_device.works():
        LOST.append(nodeid)
