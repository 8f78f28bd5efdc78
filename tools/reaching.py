"""A pytest plugin for tools/tests.py: with NumPy alone, only tests that reach compiled kernels run a second time.

With compiled kernels it notes in the file TESTS_REACHED which tests have passed, and which of them have come to a
kernel that is loaded, whether that then took the arrays or not. With TENSORGRAD_FAST=0 it leaves out those that passed
without: NumPy has computed them already. What another process does is not seen: a test that starts one counts as one
that has come to a kernel. A file that does either while it is imported or in a fixture runs as a whole.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

NOTES = Path(os.environ["TESTS_REACHED"])
COMPILED = os.environ.get("TENSORGRAD_FAST") != "0"
# What Python tells of before it starts a process.
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
reached = False  # by what runs now


def _watch_rows() -> None:
    """Has every look at a row's kernel noted."""
    from tensorgrad.kernels.compiled.runtime.row import Row

    kept = Row.__dict__["ready"]

    def look(row):
        global reached
        kernel = kept.__get__(row)
        reached = reached or kernel is not None
        return kernel

    Row.ready = property(look, kept.__set__)  # type: ignore[assignment]


def _watch_processes() -> None:
    """Has every start of a process noted."""

    def look(event, arguments):
        global reached
        reached = reached or event in STARTS

    platform.platform()  # asks `uname` once in a process, and what torch has for its own tests does when it is imported
    sys.addaudithook(look)


def _note(line: str) -> None:
    with open(NOTES, "a", encoding="utf-8") as file:  # several processes add to it
        file.write(f"{line}\n")


def pytest_configure(config):
    if COMPILED:
        _watch_rows()
        _watch_processes()


def _noting(what: str):
    """Runs a hook's other implementations, and notes `what` if they reach a kernel."""
    global reached
    reached = False
    result = yield
    if reached:
        _note(what)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return (yield from _noting(f"whole {collector.nodeid}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _noting(f"whole {item.nodeid.partition('::')[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _noting(f"reached {item.nodeid}"))


def pytest_runtest_logreport(report):
    if COMPILED and report.when == "call" and report.passed:
        _note(f"passed {report.nodeid}")


def pytest_collection_modifyitems(config, items):
    if COMPILED or not NOTES.exists():
        return
    noted: dict[str, set[str]] = {"whole": set(), "reached": set(), "passed": set()}
    for line in NOTES.read_text(encoding="utf-8").splitlines():
        what, _, node = line.partition(" ")
        noted[what].add(node)
    done = noted["passed"] - noted["reached"]
    left = [item for item in items if item.nodeid in done and item.nodeid.partition("::")[0] not in noted["whole"]]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]
