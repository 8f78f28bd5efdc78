"""Runs tests that are marked `together` at the same time: each starts processes, and most of its time is waiting."""

import inspect
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AT_ONCE = 6
_DONE: dict[str, Future] = {}


def call(item) -> None:
    """Runs the body of a test, with its parameters and a folder of its own."""
    given = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    with tempfile.TemporaryDirectory() as folder:
        if "tmp_path" in inspect.signature(item.function).parameters:
            given["tmp_path"] = Path(folder)
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
