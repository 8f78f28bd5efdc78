"""Python programs that tests run in a process of their own."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_python(code=None, *arguments, timeout=300, **options) -> subprocess.CompletedProcess:
    """Runs a Python program to its end, and returns its exit status, its output and its errors as text.

    Args:
        code: The program, which may be indented; None if the arguments name it, such as `"-m", "package"`.
        arguments: Arguments of the program, or of Python if there is no code.
        timeout: Seconds after which the process is killed, and the test fails.
        options: Parameters of subprocess.run: cwd, env, input.
    """
    program = [] if code is None else ["-c", textwrap.dedent(code)]
    command = [sys.executable, *program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


def output_of(code=None, *arguments, **options) -> str:
    """Returns what a Python program prints; fails unless its exit status is 0. Parameters are those of run_python."""
    done = run_python(code, *arguments, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(*removed, **added) -> dict[str, str]:
    """Returns this process's environment with some variables set, and those removed whose names start with a prefix."""
    return {k: v for k, v in os.environ.items() if not (removed and k.startswith(removed))} | added


def not_copied(*names: str):
    """Returns `shutil.copytree`'s `ignore` for a copy of the package, without what has one of these names.

    What this Python has compiled goes with it, or else the copy's first program takes ten times as long as it should;
    what other Pythons have compiled does not.
    """
    ours = f".{sys.implementation.cache_tag}."

    def ignore(folder, inside):
        return [name for name in inside if name in names or (name.endswith(".pyc") and ours not in name)]

    return ignore


def once_in_a_run(key: str, make):
    """Returns `make()`, which can be written as JSON and is the same with any kernels, such as what torch prints.

    In a run of all tests, the suites call it once for each key.
    """
    folder = os.environ.get("TESTS_SHARED")
    if folder is None:
        return make()
    file = Path(folder) / f"made-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if not file.exists():
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(make()))
        part.replace(file)
    return json.loads(file.read_text())
