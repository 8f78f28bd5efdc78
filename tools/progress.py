"""A plugin of pytest for tools/tests.py: writes how far it is to the file TESTS_PROGRESS, and can leave tests out.

`--few N` keeps of each test function only N of its cases, spread over all of them. `--within SECONDS` gives each file
of tests an equal part of the time that is left, and skips what it has not begun by then.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

import pytest

_file = None
_shares = None


def pytest_addoption(parser):
    parser.addoption("--few", type=int, default=0, metavar="N", help="of each test function only N cases")
    parser.addoption("--within", type=float, default=0.0, metavar="SECONDS", help="about how long all may take")


class _Shares:
    """The time that is left, and how many files of tests share it."""

    def __init__(self, seconds, files):
        self.end, self.files, self.file, self.until = time.monotonic() + seconds, files, None, 0.0

    def over(self, file):
        """Whether the file has had its part."""
        now = time.monotonic()
        if file != self.file:
            self.file, self.until = file, now + max(self.end - now, 0.0) / max(self.files, 1)
            self.files -= 1
        return now > self.until


def pytest_configure(config):
    global _file
    if "TESTS_PROGRESS" in os.environ:
        # Processes that the tests start are no part of the count.
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
    global _shares
    _write(f"total {len(session.items)}")
    seconds = session.config.getoption("--within")
    if seconds:
        _shares = _Shares(seconds, len({item.path for item in session.items}))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if _shares is not None and _shares.over(item.path):
        pytest.skip("a quick run has no time for it")


def pytest_runtest_logreport(report):
    if report.failed:
        _write(f"failed {report.nodeid}")


def pytest_runtest_logfinish(nodeid, location):
    _write("done")


def _write(line: str) -> None:
    if _file is not None:
        _file.write(line + "\n")
