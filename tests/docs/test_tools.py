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
    """Starts tools/tests.py, from a copy of the tools (which `edit` changes), on a file of tests."""

    def start(text, *arguments, edit=str, **options):
        (tmp_path / "tools").mkdir()
        for name in ("tests.py", "progress.py", "space.py"):
            (tmp_path / "tools" / name).write_text(edit((ROOT / "tools" / name).read_text()))
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
    said, _ = process.communicate(timeout=300)
    last = said.splitlines()[-1]
    counts = f" {SUITES} failed, {7 * SUITES} passed, {SUITES} skipped in "
    assert process.returncode == 1 and counts in last and last.startswith("=====") and last.endswith("===="), said
    assert said.count("def test_many") == SUITES and said.count("1 failed, 7 passed, 1 skipped") == SUITES, said


def test_a_quick_run_takes_a_few_cases_of_each(run):
    process = run(MIXED.format(bad=False), "--quick")
    said, _ = process.communicate(timeout=300)  # the cases 0 and 4 of 7
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
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and f" {8 * SUITES} passed, {SUITES} skipped in " in said.splitlines()[-1]
    assert said.count("8 passed, 1 skipped") == SUITES and "test session starts" not in said


def test_no_test_at_all_is_no_success(run):
    process = run("", "-k", "nothing")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 5 and "no tests ran in" in said.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything(run, tmp_path, number):
    text = f"""
import os, pathlib, time
def test_first(): pass
def test_long():
    pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.pid").write_text("")
    time.sleep(600)
"""
    process = run(text, start_new_session=True)
    deadline = time.monotonic() + 180
    while len(list(tmp_path.glob("*.pid"))) < SUITES and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=180)
    assert process.returncode in (2, 130) and said.count("KeyboardInterrupt") >= SUITES, said
    assert f"{SUITES} passed" in said.splitlines()[-1]
    for file in tmp_path.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.stem), 0)


def test_temporary_files_are_deleted_whatever_becomes_of_the_suites(run, tmp_path):
    """Also those of processes that are killed; `tmp_path` of a test that failed, too."""
    text = """
import os, subprocess, sys, tempfile
def test_leaves_files(tmp_path):
    (tmp_path / "file").write_text("")
    tempfile.mkdtemp()
    subprocess.run([sys.executable, "-c", "import os, tempfile; tempfile.mkdtemp(); os.kill(os.getpid(), 9)"])
    assert len(os.listdir(tempfile.gettempdir())) >= 2
    os.kill(os.getpid(), 9)
"""
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = run(text, env={**os.environ, "TMPDIR": str(folder)})
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 137 and not [*folder.iterdir()], said


def test_pytest_alone_keeps_only_files_of_tests_that_failed(tmp_path):
    """With the configuration and the conftest of this project."""
    for path in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/support", "tensorgrad"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / path).symlink_to(ROOT / path)
    (tmp_path / "tests" / "test_it.py").write_text("""
import tempfile
def test_passes(tmp_path):
    (tmp_path / "passed").write_text(tempfile.mkdtemp())
def test_fails(tmp_path):
    (tmp_path / "failed").write_text(tempfile.mkdtemp())
    assert False
""")
    folder = tmp_path / "temporary"
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left = folder / f"pytest-{killed.pid}-abc"
    (left / "folder").mkdir(parents=True)
    os.utime(left, (0, 0))
    given = {k: v for k, v in os.environ.items() if k != "PYTEST_DEBUG_TEMPROOT"} | {"TMPDIR": str(folder)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert [file.name for file in folder.rglob("*") if file.is_file() and file.name != ".lock"] == ["failed"]
    assert [file.name.startswith("pytest-of-") for file in folder.iterdir()] == [True]


def test_nothing_runs_on_a_full_disk(run):
    """No disk has this much space."""
    process = run(MIXED.format(bad=False), "--quick", edit=lambda text: text.replace("SOME = 1", "SOME = 1e9"))
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and len(said.splitlines()) == 1, said
    assert said.startswith("this needs 1e+09 GB of free disk space in ") and said.endswith(" GB\n"), said


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
