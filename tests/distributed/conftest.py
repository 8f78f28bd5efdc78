"""Tests here start processes: they inherit nothing odd, leave none behind, and run a few at the same time.

Tests that are marked `together` run at the same time, as many as there are processors, after all others: what they
start waits for imports and for each other. No other test of this folder runs meanwhile.
"""

import inspect
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tensorgrad.system.ports import ReservedPort
from tensorgrad.system.processors import processors
from tensorgrad.system.watchdog import belonging, kill
from tests.distributed.jobs import eventually
from tests.distributed.launch import no_signal_ignored, stop_servers, watchdog

HERE = Path(__file__).parent
AT_ONCE = max(2, processors())
_STARTED: dict[str, Future | None] = {}  # None: its result has been told


def pytest_collection_modifyitems(items):
    here = [number for number, item in enumerate(items) if item.path.parent == HERE]
    ordered = sorted((items[number] for number in here), key=is_together)
    for number, item in zip(here, ordered):
        items[number] = item


def is_together(item) -> bool:
    return item.get_closest_marker("together") is not None


@pytest.fixture(scope="package", autouse=True)
def signals_are_not_ignored():
    with no_signal_ignored():
        yield


@pytest.fixture(scope="package", autouse=True)
def no_process_is_left(signals_are_not_ignored):
    """What tests have started has ended when they have."""
    dog = watchdog()
    yield
    stop_servers()
    early = [future for future in _STARTED.values() if future is not None]  # pytest ends before they have
    for future in early:
        future.cancel()
    gone = not early and eventually(lambda: not belonging(set(dog.leaders), dog.token), 120)
    left = set() if gone else {pid: command(pid) for pid in kill(set(dog.leaders), dog.token)}
    assert early or not left, f"processes are left: {left}"


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
    """Waits for the result of such a test. The first one starts them all; a test that runs again runs alone."""
    if pyfuncitem.path.parent != HERE or not is_together(pyfuncitem):
        return None
    if not _STARTED:
        items = [item for item in pyfuncitem.session.items if item.path.parent == HERE and is_together(item)]
        pool = ThreadPoolExecutor(AT_ONCE)
        _STARTED.update({item.nodeid: pool.submit(call, item) for item in items if not is_skipped(item)})
        pool.shutdown(wait=False)
    future = _STARTED[pyfuncitem.nodeid]
    _STARTED[pyfuncitem.nodeid] = None
    if future is None:
        call(pyfuncitem)
    else:
        future.result()
    return True
