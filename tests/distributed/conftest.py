"""Tests here start processes: they inherit nothing odd, leave none behind, and run a few at the same time.

Tests that are marked `together` run at the same time, since most of their time is waiting: as many as there are
processors.
"""

import inspect
import signal
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tensorgrad.system.ports import ReservedPort
from tensorgrad.system.processors import processors
from tensorgrad.system.watchdog import belonging, kill
from tests.distributed.jobs import eventually
from tests.distributed.launch import watchdog
from tests.support.once import once

HERE = Path(__file__).parent
WITH_KERNELS = {"test_ddp.py", "test_groups.py", "test_fsdp.py"}  # run with compiled kernels, too
AT_ONCE = max(2, processors())
_DONE: dict[str, Future] = {}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE and item.path.name not in WITH_KERNELS:
            item.add_marker(once)


@pytest.fixture(scope="package", autouse=True)
def signals_are_not_ignored():
    """Processes inherit which signals are ignored, as SIGHUP under `nohup` and SIGINT in the background of a shell."""
    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left(signals_are_not_ignored):
    """What the tests of a module have started has ended when they have."""
    dog = watchdog()
    yield
    gone = eventually(lambda: not belonging(set(dog.leaders), dog.token), 20)
    left = set() if gone else {pid: command(pid) for pid in kill(set(dog.leaders), dog.token)}
    assert not left, f"processes are left: {left}"


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "?"


@pytest.fixture
def port():
    """A port that no other program gets; to listen on it, name it."""
    with ReservedPort() as reserved:
        yield reserved.number


def call(item) -> None:
    """Runs the body of a test, with its parameters, and a folder and a port of its own."""
    given = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    wanted = inspect.signature(item.function).parameters
    with ExitStack() as stack:
        if "tmp_path" in wanted:
            given["tmp_path"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if "port" in wanted:
            given["port"] = stack.enter_context(ReservedPort()).number
        item.function(**given)


def is_skipped(item) -> bool:
    return any(mark.args[0] for mark in item.iter_markers("skipif"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """The first such test of a module runs all of them, to the end: none overlaps with a test that has no mark."""
    if pyfuncitem.get_closest_marker("together") is None:
        return None
    if pyfuncitem.nodeid not in _DONE:
        items = [item for item in pyfuncitem.session.items if item.path == pyfuncitem.path]
        items = [item for item in items if item.get_closest_marker("together") and not is_skipped(item)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            _DONE.update({item.nodeid: pool.submit(call, item) for item in items})
    _DONE.pop(pyfuncitem.nodeid).result()
    return True
