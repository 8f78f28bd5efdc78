"""tools/tests.py, which `make test` runs: exit status, closing line, interrupts; what torch lacks here is skipped."""

import importlib
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import conftest
from tests.support import alike

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="make and its tools are for POSIX systems")


@pytest.fixture
def run(tmp_path):
    """Starts tools/tests.py, from a copy of the tools (which `edit` changes), on a file of tests."""

    def start(text, *arguments, edit=str, env=None, **options):
        (tmp_path / "tools").mkdir()
        for file in (ROOT / "tools").glob("*.py"):
            (tmp_path / "tools" / file.name).write_text(edit(file.read_text()))
        (tmp_path / "test_it.py").write_text(text)
        command = [sys.executable, "tools/tests.py", "-p", "no:cacheprovider", *arguments, "test_it.py"]
        # To load plugins that these tests do not use takes longer than they do.
        given = {**(env or os.environ), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, env=given, **pipes, **options)

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
sys.path.insert(0, str(ROOT / "tools"))
SUITES = 1 + importlib.import_module("phases").has_compiled_kernels(ROOT)
sys.path.pop(0)


def test_the_last_line_counts_all_suites_and_failures_are_shown(run):
    process = run(MIXED.format(bad=False), "-m", "not slow")
    said, _ = process.communicate(timeout=300)
    last = said.splitlines()[-1]
    counts = f" {7 * SUITES} passed, {SUITES} failed, {SUITES} skipped, 0 retried in "
    assert process.returncode == 1 and counts in last and last.startswith("=====") and last.endswith("===="), said
    assert said.count("def test_many") == SUITES and said.count("1 failed, 7 passed, 1 skipped") == SUITES, said


def test_the_files_that_took_longest_are_named_in_that_order():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        module = importlib.import_module("suite")
    finally:
        sys.path.pop(0)
    suites = [module.Suite("a", []), module.Suite("b", [])]
    suites[0].seconds.update({"tests/a/test_1.py": 2.5, "tests/a/test_2.py": 0.25})
    suites[1].seconds.update({"tests/b/test_3.py": 31.0})
    assert [line.strip() for line in module.slowest(suites)] == [
        "31.0 s  tests/b/test_3.py (b)", "2.5 s  tests/a/test_1.py (a)", "0.2 s  tests/a/test_2.py (a)",
    ]  # fmt: skip


REACHING = """
import pytest
import tensorgrad as torch
def test_small(): torch.ones(2).exp()
def test_large(): torch.ones(100_000).exp()
def test_process():
    import subprocess, sys
    subprocess.run([sys.executable, "-c", "pass"])
def test_skipped(): pytest.skip("no reason")
"""
IN_A_FIXTURE = """
import pytest
import tensorgrad as torch
@pytest.fixture(scope="module")
def made(): return torch.ones(100_000).exp()
def test_first(made): pass
def test_second(made): pass
"""


@pytest.mark.skipif(SUITES == 1, reason="there are no compiled kernels")
def test_with_numpy_alone_what_reaches_no_kernel_is_left_out(tmp_path):
    for name, text in (("a", REACHING), ("b", IN_A_FIXTURE)):
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "tools.reaching", str(tmp_path)]
    given = {**os.environ, "TESTS_REACHED": str(tmp_path / "reached")}
    given.pop("TENSORGRAD_FAST", None)
    said = ""
    for environment in (given, given | {"TENSORGRAD_FAST": "0"}):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        said = done.stdout
    assert "4 passed, 1 skipped, 1 deselected" in said and "test_small" not in said, said


def test_a_quick_run_takes_a_few_cases_of_each(run):
    process = run(MIXED.format(bad=False), "--quick")
    said, _ = process.communicate(timeout=300)  # the cases 0 and 4 of 7
    assert process.returncode == 1 and f" {2 * SUITES} passed, {SUITES} failed, {SUITES} skipped, " in said, said


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


def test_all_that_passes_is_a_line_for_each_process_and_the_sum(run):
    process = run(MIXED.format(bad=True), "-m", "not slow")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and f" {8 * SUITES} passed, 0 failed, {SUITES} skipped, " in said.splitlines()[-1]
    assert said.count("8 passed, 1 skipped") == SUITES and "test session starts" not in said


def test_no_test_at_all_is_not_a_success(run):
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
    at_once = min(SUITES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    while len(list(tmp_path.glob("*.pid"))) < at_once and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=180)
    assert process.returncode in (2, 130) and said.count("KeyboardInterrupt") >= at_once, said
    last = said.splitlines()[-1]
    assert f"{at_once} passed" in last and f"; {at_once} tests and {SUITES - at_once} suites did not run in" in last
    for file in tmp_path.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.stem), 0)


def test_a_socket_fits_below_the_temporary_folder(run, tmp_path):
    """Browsers make theirs with paths of 70 more bytes; there is room for 107, and the name of a suite may be long."""
    text = """
import os, pathlib, tempfile
def test_its_name_is_short():
    folder = pathlib.Path(tempfile.gettempdir()).relative_to(os.environ["OUTER"])
    run, suite = map(len, folder.parts)
    assert run <= 14 and suite <= 8
"""
    folder = tmp_path / "temporary"
    folder.mkdir()
    said, _ = run(text, env={**os.environ, "TMPDIR": str(folder), "OUTER": str(folder)}).communicate(timeout=180)
    assert " passed, 0 failed" in said, said


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


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by their environment, in /proc")
def test_nothing_is_left_after_a_kill(run, tmp_path):
    """Neither temporary files, nor processes, also those in sessions of their own, nor shared memory of MPI jobs."""
    text = f"""
import os, pathlib, subprocess, sys, tempfile, time
def test_long():
    tempfile.mkdtemp()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.pid").write_text("")
    pathlib.Path({str(tmp_path)!r}, f"{{child.pid}}.pid").write_text("")
    time.sleep(600)
"""
    left, used = (Path(f"/dev/shm/mpich_shm_{name}_{os.getpid()}") for name in ("left", "used"))
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = run(text, "-k", "long", env={**os.environ, "TMPDIR": str(folder), "TENSORGRAD_FAST": "0"})
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) >= 2)
    left.write_bytes(b"of a rank that was killed")
    with open(used, "wb+") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096):
            process.kill()
            process.communicate(timeout=300)
            wait_until(lambda: not [*folder.iterdir()] and not left.exists())
            assert used.exists()
    used.unlink()
    for file in tmp_path.glob("*.pid"):
        wait_until(lambda file=file: not Path("/proc", file.stem).exists())


def wait_until(holds):
    """Waits for something that another process does; only a hang reaches the limit."""
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


ON_THE_MACHINE = """
import pathlib, pytest
@pytest.mark.machine("how often it was run before")
def test_second_time():
    file = pathlib.Path({folder!r}, "ran")
    before = file.exists()
    file.write_text("")
    assert before {also}
def test_other(): assert {other}
"""


@pytest.mark.parametrize("also, other, good", [("", True, True), ("and False", True, False), ("", False, False)])
def test_only_what_depends_on_the_machine_is_repeated(run, tmp_path, also, other, good):
    """And only if nothing else has failed beside it; it is named, and counted."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = machine(reason): x\n")
    process = run(ON_THE_MACHINE.format(folder=str(tmp_path), also=also, other=other), edit=one_suite)
    said, _ = process.communicate(timeout=300)
    last = said.splitlines()[-1]
    assert (process.returncode == 0) == good, said
    assert ("retried, and passed: test_it.py::test_second_time" in said) == good
    assert ("it depends on how often it was run before" in said) == good
    assert (" 2 passed, 0 failed, 1 retried in " in last) == good, last


def one_suite(text):
    """Runs a file outside of tests/ with NumPy alone."""
    return text.replace("((COMPILED, NUMPY) if compiled else (NUMPY,))", "(NUMPY,)")


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


@pytest.mark.parametrize("small, of", [("SPACE_FOR_SOME = 3, 1", "free disk space in "), ("MEMORY = 2", "memory; ")])
def test_nothing_runs_on_a_full_disk_or_without_memory(run, small, of):
    """No disk has this much space, and no machine as much memory."""
    if of.startswith("memory") and not Path("/proc/meminfo").exists():
        pytest.skip("this system does not say in /proc/meminfo how much memory is available")
    process = run(MIXED.format(bad=False), "--quick", edit=lambda text: text.replace(small, f"{small}_000_000_000"))
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and len(said.splitlines()) == 1, said
    assert said.startswith("this needs ") and of in said, said


# --- which tests run when --------------------------------------------------------------------------------------------


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


def test_every_test_file_runs_once_or_with_both_kernels(tools):
    """Each is in one phase, and runs with NumPy alone, with compiled kernels, or with both; or on emulated GPUs."""
    phases = tools("phases")
    first, second = phases.phases(ROOT / "tests", compiled=True, emulator=True)
    runs = {}
    for number, parts in enumerate((first, second)):
        assert len({(part.name, part.kernels) for part in parts}) == len(parts)
        for part in parts:
            for file in part.files:
                runs.setdefault(file, []).append((number, part.kernels))
    assert sorted(runs) == phases.test_files(ROOT / "tests")
    for file, where in runs.items():
        kernels = [kernels for _, kernels in where]
        assert len({number for number, _ in where}) == 1, file
        once = [[phases.COMPILED], [phases.EMULATOR], [phases.EMULATOR] * 2]
        assert sorted(kernels) in [*once, [phases.NUMPY, phases.COMPILED]], (file, kernels)
    alone = phases.phases(ROOT / "tests", compiled=False, emulator=False)
    rest = {file for file in runs if phases.matches(file, ROOT / "tests", phases.EMULATED)}
    assert {file for parts in alone for part in parts for file in part.files} == {*runs} - rest
    both = {file for file in runs if phases.matches(file, ROOT / "tests", phases.BOTH_KERNELS)}
    both -= {file for file in runs if phases.matches(file, ROOT / "tests", phases.ONCE)}
    assert both == {file for file, where in runs.items() if len({kernels for _, kernels in where}) == 2}


def test_parts_are_of_similar_length_and_the_longest_starts_first(tools):
    """By seconds that were measured, of files that are still there."""
    phases = tools("phases")
    assert not [name for name in phases.SECONDS if not (ROOT / "tests" / name).exists()]
    for parts in phases.phases(ROOT / "tests", compiled=True, emulator=True):
        lengths = [part.seconds for part in parts]
        assert lengths == sorted(lengths, reverse=True)
        small = [str(part.environment) for part in parts if part.seconds <= phases.SMALL_PART and not part.reaching]
        assert len(small) == len({*small}), "these could share a process"
        for part in parts:
            longest = max(map(phases.seconds_of, part.files))
            assert part.seconds <= max(1.5 * phases.LARGEST_PART, longest), part.name


@pytest.mark.parametrize("line, second", [
    ("import subprocess", True), ("from signal import SIGINT", True), ("    import time", True),
    ("from tests.support.processes import run_python", True), ("from tests.support import alike, forking", True),
    ("import threading", False), ("from tests.support import alike", False), ("import timeit", False),
])  # fmt: skip
def test_files_about_processes_run_in_the_second_phase(tools, tmp_path, line, second):
    (tmp_path / "ops").mkdir()
    file = tmp_path / "ops" / "test_x.py"
    file.write_text(f"{line}\n")
    assert tools("phases").starts_processes(file, tmp_path) == second


@pytest.mark.parametrize("changed, chosen, left", [
    ("tensorgrad/viz/graph.py", "viz/test_viz_graph.py", "ops/test_ops.py"),
    ("tensorgrad/ops/nn/softmax.py", "distributed/test_ddp.py", None),
    ("tests/support/chromium.py", "viz/test_viz_explore.py", "viz/test_summary.py"),
    ("tests/cuda/conftest.py", "cuda/test_nn.py", "nn/test_layers.py"),
    ("docs/cuda.md", "docs/test_docs.py", "docs/test_examples.py"),
    ("pyproject.toml", "fx/test_fx.py", None),
])  # fmt: skip
def test_changed_files_choose_the_tests_that_depend_on_them(tools, changed, chosen, left):
    files = tools("phases").test_files(ROOT / "tests")
    found = tools("changed").affected(ROOT, files, [changed])
    names = {file.relative_to(ROOT / "tests").as_posix() for file in found.files}
    assert chosen in names and (left not in names if left else len(names) == len(files)), found.text
    assert ("all of them depend on" in found.text) == (left is None)
    assert ("left out are" in found.text) == (left is not None)


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
