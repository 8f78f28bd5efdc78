"""The most used libraries import and train, and examples of them run, without torch, in one environment.

It is made once and kept (in the folder that the variable TENSORGRAD_ECOSYSTEM names; pip keeps the packages, too), so
that continuous integration takes minutes. `python -m tests.ecosystem` runs all libraries, each in an environment of its
own, and all programs.
"""

import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.ecosystem import running
from tests.ecosystem.environments import Unavailable, environment
from tests.ecosystem.libraries import LIBRARIES, QUICK
from tests.support.once import once
from tests.support.processes import ROOT

pytestmark = [pytest.mark.slow, once]  # the environment has no Numba

EXAMPLES = ROOT / "examples" / "libraries"
RUNS = {  # example -> its arguments, and what it prints
    "embedding_server.py": (["--once", "rain in town"], r"^\[(-?\d\.[\de-]+(, )?){64}\]$"),
    "lightning_digits.py": ([], r"accuracy on held-out digits 0\.[89]"),
    "lora.py": ([], r"it counts down: \[20, 19, 18, 17, 16, 15, 14\]"),
    "timm_digits.py": (["--epochs", "1"], r"epoch 1, loss \d"),
    "transformers_trainer.py": ([], r"walks by the river' is about the past: 0\.0"),
}


@pytest.fixture(scope="module")
def python():
    try:
        return environment(QUICK)
    except Unavailable as error:
        pytest.skip(f"its environment cannot be made: {error}")


@pytest.mark.parametrize("library", [row for row in LIBRARIES if row.quick], ids=lambda row: row.name)
def test_imports_and_trains(library, python):
    running.imports(python, library)
    name = library.programs[0]
    running.compare(name, running.run_program(python, name))


def test_every_example_is_run():
    assert set(RUNS) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", RUNS)
def test_examples(name, python, tmp_path):
    arguments, printed = RUNS[name]
    done = python.run([str(EXAMPLES / name), *arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(printed, done.stdout, re.MULTILINE), done.stdout[-2000:]


def test_the_server_answers(python, tmp_path):
    command = [str(python.python), str(EXAMPLES / "embedding_server.py"), "--port", "0"]
    with subprocess.Popen(command, env=python.variables(), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split()[-1]
            texts = json.dumps(["a cat on a mat", "rain in town"]).encode()
            with urllib.request.urlopen(urllib.request.Request(address, texts), timeout=60) as answer:
                first, second = json.load(answer)
            assert len(first) == len(second) == 64 and sum(x * x for x in first) == pytest.approx(1, abs=1e-4)
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(urllib.request.Request(address, b'{"no": "list"}'), timeout=60)
        finally:
            server.kill()
