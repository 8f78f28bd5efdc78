"""A pytest plugin: leaves tests out by pattern, and writes each test's outcome to a file as soon as it is known.

Tests whose outcome is in the file already are not run again; one that began and never ended is "crashed".
"""

import fnmatch
import json
import os
import zlib

import pytest

FILE, LEFT_OUT = os.environ["ECOSYSTEM_OUTCOMES"], json.loads(os.environ["ECOSYSTEM_LEFT_OUT"])
ONE_IN = int(os.environ.get("ECOSYSTEM_ONE_IN", "1"))  # the sample: the same tests on every side


def _write(test, outcome, reason=""):
    with open(FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps([test, outcome, reason]) + "\n")


def _seen():
    try:
        with open(FILE, encoding="utf-8") as file:
            return {json.loads(line)[0]: json.loads(line)[1:] for line in file}
    except FileNotFoundError:
        return {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    seen = _seen()
    kept, deselected = [], []
    for item in items:
        left_out = any(fnmatch.fnmatch(item.nodeid, pattern) for pattern in LEFT_OUT)
        left_out = left_out or zlib.crc32(item.nodeid.encode()) % ONE_IN
        (deselected if left_out or item.nodeid in seen else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=deselected)


def pytest_collectreport(report):
    if report.failed:
        _write(report.nodeid, "failed", _last_line(report))


def pytest_runtest_logstart(nodeid, location):
    _write(nodeid, "crashed", "the process ended")  # what is written later replaces it


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if type(report) is not pytest.TestReport:  # a part of a test: the whole test fails if it does
        return
    if report.when == "call" or report.outcome != "passed":
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        if report.when == "teardown":
            outcome = "failed"
        _write(report.nodeid, outcome, "" if outcome == "passed" else _last_line(report))


def _last_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text = crash.message
    elif isinstance(report.longrepr, tuple):  # a skipped test: file, line, reason
        text = report.longrepr[2]
    else:
        text = str(report.longrepr or "").strip().rpartition("\n")[2]
    return text.strip().partition("\n")[0][:300]
