"""tools/tests.py, which `make test` runs: exit status, closing line, interrupts; what torch lacks here is skipped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import conftest
from tests.support import alike
from tests.support.once import once

ROOT = Path(__file__).parents[2]
pytestmark = [once, pytest.mark.skipif(os.name != "posix", reason="make and its tools are for POSIX systems")]


@pytest.fixture
def run(tmp_path):
    """Starts tools/tests.py, from a copy of the tools, on a file of tests."""

    def start(text, *arguments, **options):
        (tmp_path / "tools").mkdir()
        for name in ("tests.py", "progress.py"):
            (tmp_path / "tools" / name).write_text((ROOT / "tools" / name).read_text())
        (tmp_path / "test_it.py").write_text(text)
        command = [sys.executable, "tools/tests.py", "-p", "no:cacheprovider", *arguments, "test_it.py"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, **pipes, **options)

    return start


MIXED = """
import pytest
def test_good(): pass
@pytest.mark.parametrize("i", range(7))
def test_many(i): assert i != 4 or {bad}
def test_not_here(): pytest.skip("no reason")
@pytest.mark.slow
def test_slow(): raise AssertionError("quick runs leave this out")
"""
SUITES = 2 if __import__("importlib.util").util.find_spec("numba") else 1


def test_the_last_line_counts_all_suites_and_failures_are_shown(run):
    process = run(MIXED.format(bad=False), "-m", "not slow")
    said, _ = process.communicate(timeout=120)
    last = said.splitlines()[-1]
    counts = f" {SUITES} failed, {7 * SUITES} passed, {SUITES} skipped in "
    assert process.returncode == 1 and counts in last and last.startswith("=====") and last.endswith("===="), said
    assert said.count("def test_many") == SUITES and said.count("1 failed, 7 passed, 1 skipped") == SUITES, said


def test_a_quick_run_takes_a_few_cases_of_each(run):
    process = run(MIXED.format(bad=False), "--quick")
    said, _ = process.communicate(timeout=120)  # the cases 0 and 4 of 7
    assert process.returncode == 1 and f" {SUITES} failed, {2 * SUITES} passed, {SUITES} skipped in " in said, said


def test_a_quick_run_has_an_end(tmp_path):
    """Each file begins, none takes more than its part of the time, and what is left out is said to be skipped."""
    for name in "abc":
        waits = "import pytest, time\n@pytest.mark.parametrize('i', range(50))\ndef test_it(i): time.sleep(0.1)\n"
        (tmp_path / f"test_{name}.py").write_text(waits)
    command = [sys.executable, "-m", "pytest", "-p", "tools.progress", "-p", "no:cacheprovider", "--within", "1.5"]
    done = subprocess.run([*command, "-v", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    for name in "abc":
        assert (
            f"test_{name}.py::test_it[0] PASSED" in done.stdout
            and f"test_{name}.py::test_it[49] SKIPPED" in done.stdout
        )


def test_all_that_passes_is_two_lines_and_the_sum(run):
    process = run(MIXED.format(bad=True), "-m", "not slow")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and f" {8 * SUITES} passed, {SUITES} skipped in " in said.splitlines()[-1]
    assert said.count("8 passed, 1 skipped") == SUITES and "test session starts" not in said


def test_no_test_at_all_is_no_success(run):
    process = run("", "-k", "nothing")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 5 and "no tests ran in" in said.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything(run, tmp_path, number):
    text = f"""
import os, pathlib, time
def test_first(): pass
def test_long():
    pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.pid").write_text("")
    time.sleep(100)
"""
    process = run(text, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.pid"))) < SUITES and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode in (2, 130) and said.count("KeyboardInterrupt") >= SUITES, said
    assert f"{SUITES} passed" in said.splitlines()[-1]
    for file in tmp_path.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.stem), 0)


# --- what torch can do on this machine -------------------------------------------------------------------------------

LACKING = "could not create a primitive descriptor for the LSTM forward propagation primitive"


@pytest.mark.skipif(not alike.HAS_TORCH, reason="there is no torch that could lack something")
def test_what_torch_lacks_here_is_skipped_and_nothing_else():
    def call(error):
        raise error

    with pytest.raises(pytest.skip.Exception, match="LSTM"):
        alike.of_torch(lambda: call(RuntimeError(LACKING)))
    for error in (RuntimeError("shapes cannot be multiplied"), ValueError(LACKING)):
        with pytest.raises(type(error)):
            alike.of_torch(lambda error=error: call(error))
    for error, ends in ((RuntimeError(LACKING), pytest.skip.Exception), (RuntimeError("mine"), RuntimeError)):
        hook = conftest.pytest_runtest_call(None)
        next(hook)
        with pytest.raises(ends):
            hook.throw(error)
    assert alike.last_bit() in (0.0, 1e-6)
    assert [*alike.texts({"a": ["x", ("y", 1)]})] == ["x", "y"]
