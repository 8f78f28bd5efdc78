"""A pytest plugin for tools/tests.py: writes progress to the file TESTS_PROGRESS, and can run a selection of tests.

Progress is one line per event: `total COUNT`, `done SECONDS FILE`, `failed TEST`, `machine TEST<tab>REASON`.

`--few N` keeps only N cases of each test function, spread over all of them. `--within SECONDS` gives each test file an
equal share of the remaining time, and skips its remaining tests when the share is used up.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict

import pytest

# Most objects of a suite are tests, torch and tensorgrad, which stay: Python went through all of them every second.
gc.set_threshold(*gc.get_threshold()[:2], 100)

_file = None
_shares = None
_last = time.monotonic()  # when the last test ended, or collecting


def pytest_addoption(parser):
    parser.addoption("--few", type=int, default=0, metavar="N", help="run only N cases of each test function")
    parser.addoption(
        "--within", type=float, default=0.0, metavar="SECONDS", help="approximate time limit for the whole run"
    )


class _Shares:
    """Distributes the remaining time over the remaining test files."""

    def __init__(self, seconds, files):
        self.end, self.files, self.file, self.until = time.monotonic() + seconds, files, None, 0.0

    def over(self, file):
        """Returns whether the file has used up its share."""
        now = time.monotonic()
        if file != self.file:
            self.file, self.until = file, now + max(self.end - now, 0.0) / max(self.files, 1)
            self.files -= 1
        return now > self.until


def pytest_configure(config):
    global _file
    if "TESTS_PROGRESS" in os.environ:
        # Removed from the environment, so that processes started by tests are not counted.
        _file = open(os.environ.pop("TESTS_PROGRESS"), "a", encoding="utf-8", buffering=1)  # noqa: SIM115


def pytest_unconfigure(config):
    if _file is not None:
        _file.close()


def pytest_collection_modifyitems(config, items):
    most = config.getoption("--few")
    if most:
        functions = defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        kept = {id(c) for cases in functions.values() for c in cases[:: -(-len(cases) // most)]}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]


def pytest_collection_finish(session):
    global _last, _shares
    _last = time.monotonic()
    _write(f"total {len(session.items)}")
    seconds = session.config.getoption("--within")
    if seconds:
        _shares = _Shares(seconds, len({item.path for item in session.items}))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if _shares is not None and _shares.over(item.path):
        pytest.skip("skipped in a quick run for lack of time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    mark = item.get_closest_marker("machine")
    if report.failed and mark is not None:
        _write(f"machine {report.nodeid}\t{mark.args[0]}")
    return report


def pytest_runtest_logreport(report):
    if report.failed:
        _write(f"failed {report.nodeid}")


def pytest_runtest_logfinish(nodeid, location):
    global _last
    now = time.monotonic()
    _write(f"done {now - _last:.3f} {nodeid.partition('::')[0]}")
    _last = now


def _write(line: str) -> None:
    if _file is not None:
        _file.write(line + "\n")
