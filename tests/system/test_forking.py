"""tools/forking.py, which starts suites and the ranks of jobs: programs run as if Python had just been started."""

import json
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.support.processes import environment
from tools.forking import Server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
HANG = 200  # seconds: only what hangs takes as long


@pytest.fixture(scope="module")
def server():
    """A process that has imported NumPy."""
    server = Server(["numpy", "a_module_that_is_not_there"], environment(COLOUR="red"))
    yield server
    server.stop()


@pytest.fixture
def run(server, tmp_path):
    """`run(*arguments, **variables)` returns what a program prints and its exit status."""

    def start(*arguments, size=1, **variables):
        files = [open(tmp_path / f"{i}", "w+") for i in range(size)]  # noqa: SIM115
        pairs = [(file.fileno(), file.fileno()) for file in files]
        environments = [variables | {"NUMBER": str(i)} for i in range(size)]
        processes = server.start([*arguments], environments, pairs, tmp_path)
        codes = [process.wait(HANG) for process in processes]
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read())
            file.close()
        return [*zip(texts, codes, strict=True)] if size > 1 else (texts[0], codes[0])

    return start


TELLS = """
import json, os, signal, sys, tempfile, threading
import numpy
print(json.dumps({
    "name": __name__, "arguments": sys.argv, "folder": os.getcwd(), "colour": os.environ["COLOUR"],
    "given": os.environ.get("GIVEN"), "temporary": tempfile.gettempdir(), "leads": os.getsid(0) == os.getpid(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)],
    "threads": threading.active_count(), "path": sys.path[0], "files": sorted(map(int, os.listdir("/proc/self/fd"))),
    "imported": [name for name in ("numpy", "tensorgrad", "torch") if name in sys.modules],
    "draws": [numpy.random.rand(), __import__("random").random()],
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed in /proc")
def test_a_program_is_like_one_that_python_starts(run, tmp_path):
    """Name, arguments, folder, path, signals, open files: the same; modules are there; random numbers are its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "program.py").write_text(TELLS)
    given = {"GIVEN": "yes", "TMPDIR": str(folder)}
    for arguments in (["-c", TELLS, "a", "b"], ["program.py", "a"], ["-m", "program", "a"]):
        whole = environment(COLOUR="red", **given)
        command = [sys.executable, *arguments]
        usual = subprocess.run(
            command, cwd=tmp_path, env=whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG,
            start_new_session=True,
        )  # fmt: skip
        said, code = run(*arguments, **given)
        assert (code, usual.returncode) == (0, 0), said + usual.stderr
        found, expected = json.loads(said), json.loads(usual.stdout)
        assert found.pop("draws") != expected.pop("draws")
        assert found == expected | {"path": found["path"]}
        assert os.path.realpath(found["path"] or tmp_path) == os.path.realpath(expected["path"] or tmp_path)


def test_processes_of_a_job_differ_in_their_variables(run):
    program = "import os, random, sys; print(random.random()); sys.exit(int(os.environ['NUMBER']))"
    results = run("-c", program, size=3)
    assert [code for _, code in results] == [0, 1, 2]
    assert len({said for said, _ in results}) == 3


def test_how_a_program_ends(run):
    said, code = run("-c", "raise ValueError('mine')")
    assert code == 1 and said.rstrip().endswith("ValueError: mine") and "Traceback" in said
    assert run("-c", "import os; os.kill(os.getpid(), 9)") == ("", -signal.SIGKILL)
    assert run("-c", "import atexit; atexit.register(print, 'ended')") == ("ended\n", 0)


LEAVES = """
import atexit, os, sys, threading
class Kept:
    def __del__(self, write=os.write):
        write(1, b"taken apart")
kept = Kept()
threading.Thread(target=lambda: (threading.main_thread().join(), print("joined"))).start()
atexit.register(print, "ended", end="")  # stays in the buffer
sys.stderr.write("said ")
"""


@pytest.mark.parametrize(
    "end, status, last",
    [
        ("sys.exit(3)", 3, False),
        ("sys.exit()", 0, True),
        ("sys.exit('why')", 1, True),
        ("raise KeyboardInterrupt", -signal.SIGINT, True),
        ("raise ValueError", 1, True),
    ],
)
def test_a_suite_leaves_as_python_ends_without_taking_objects_apart(end, status, last, tmp_path):
    """If it says with which status: as pytest does. All else is left to Python."""
    for leave in (False, True):
        server = Server(["numpy"], environment(), leave)
        with open(tmp_path / "output", "w+") as file:
            (process,) = server.start(["-c", LEAVES + end], [{}], [(file.fileno(), file.fileno())])
            assert process.wait(HANG) == status
            file.seek(0)
            said = file.read()
        server.stop()
        assert [said.count(word) for word in ("said ", "joined", "ended")] == [1, 1, 1]
        assert ("taken apart" in said) is (last or not leave)
        assert ("Traceback" in said) is (end[0] == "r") and ("why" in said) is ("why" in end)


def test_a_process_is_waited_for_interrupted_and_killed(server):
    with tempfile.TemporaryFile("w+") as file:
        program = "import time; print('begun', flush=True); time.sleep(600)"
        for number in (signal.SIGINT, signal.SIGKILL):
            (process,) = server.start(["-c", program], [{}], [(file.fileno(), file.fileno())])
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0)
            while not os.fstat(file.fileno()).st_size:
                assert process.poll() is None
            process.send_signal(number)
            assert process.wait(HANG) == -number == process.poll()
            process.kill()  # it has ended: nothing happens
            file.truncate(0)


def test_who_waits_learns_that_nobody_tells_how_a_program_ended():
    """Here: as the process that forked it was killed."""
    server = Server([], environment())
    with tempfile.TemporaryFile("w+") as file:
        program = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"
        (process,) = server.start(["-c", program], [{}], [(file.fileno(), file.fileno())])
        text = b""
        while not text.endswith(b"\n"):
            assert process.poll() is None
            text = os.pread(file.fileno(), 100, 0)  # leaves alone the place at which the program writes
        os.kill(int(text), signal.SIGKILL)
        assert process.wait(HANG) == -signal.SIGKILL
        os.kill(process.pid, signal.SIGKILL)
        server.process.kill()
        server.process.wait(HANG)
        with pytest.raises((RuntimeError, BrokenPipeError)):
            server.start(["-c", ""], [{}], [(file.fileno(), file.fileno())])
    server.stop()
