"""Runs a library's programs and compares their numbers with those recorded under torch."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

from tests.ecosystem.environments import Environment
from tests.ecosystem.libraries import Library

HERE = Path(__file__).resolve().parent
PROGRAMS, EXPECTED = HERE / "programs", HERE / "expected"
RELATIVE = 1e-4  # of the largest number of a list: float32 sums in another order
SECONDS = 300
_SAID_AT_THE_END = ("Exception ignored", "Exception in thread", "Fatal Python error", "terminate called")


class Failed(Exception):
    """A program that did not end well, or printed other numbers than torch; in one line."""


def imports(environment: Environment, library: Library) -> None:
    """Imports a library's modules, in the folder of its environment: not in this checkout. Raises: Failed."""
    program = "\n".join(f"import {name}" for name in library.imports)
    _output(environment, ["-c", program], cwd=environment.python.parent)


def run_program(environment: Environment, name: str, torch: Path | None = None, folder: str = "") -> dict[str, Any]:
    """Runs a program and returns what it printed last.

    Args:
        environment: Where it runs.
        name: Its name, without `.py`.
        torch: The folder with the real torch; None for tensorgrad.
        folder: Given to it as argument: it loads the files that are there, and writes those that are not.

    Raises:
        Failed: If it fails, or prints something else.
    """
    printed = _output(environment, [str(PROGRAMS / f"{name}.py"), *filter(None, [folder])], torch=torch)
    return _numbers(name, printed)


def import_and_run(environment: Environment, library: Library, name: str) -> dict[str, Any]:
    """Imports a library's modules, then runs a program in the same process: the imports take longer than the training.

    Raises: Failed.
    """
    file = str(PROGRAMS / f"{name}.py")
    lines = [*(f"import {module}" for module in library.imports), "import runpy, sys"]
    lines += [
        f"sys.argv, sys.path[0] = [{file!r}], {str(PROGRAMS)!r}",
        f"runpy.run_path({file!r}, run_name='__main__')",
    ]
    return _numbers(name, _output(environment, ["-c", "\n".join(lines)], cwd=environment.python.parent))


def _numbers(name: str, printed: str) -> dict[str, Any]:
    """Returns what a program printed last. Raises: Failed."""
    try:
        numbers = json.loads(printed.strip().splitlines()[-1])
        assert set(numbers) == {"losses", "numbers"} and len(numbers["losses"]) >= 1
        return numbers
    except (AssertionError, IndexError, TypeError, ValueError):
        last = printed.strip().splitlines()[-1:]
        raise Failed(f"{name}: its last line is not an object with losses and numbers: {last}") from None


def endings(environment: Environment, name: str, times: int = 10) -> str:
    """Runs a program several times and looks how its processes end: "yes", or what was wrong with one of them.

    Under torch each of these programs ends with status 0. What Python merely reports while a process ends (an
    exception that it ignores, a thread that fails) counts, too.
    """
    for n in range(1, times + 1):
        try:
            done = environment.run([str(PROGRAMS / f"{name}.py")], timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"run {n} of {times}: more than {SECONDS} seconds"
        said = [line for line in done.stderr.splitlines() if line.startswith(_SAID_AT_THE_END)]
        if done.returncode or said:
            last = said or done.stderr.strip().splitlines()[-1:]
            return f"run {n} of {times}: exit status {done.returncode}: {''.join(last[:1])[:300]}"
    return "yes"


def takes_a_folder(name: str) -> bool:
    """Returns whether a program looks at its argument: the folder that it saves to, or loads from what is there."""
    return "sys.argv" in (PROGRAMS / f"{name}.py").read_text()


def record(name: str, numbers: dict[str, Any]) -> None:
    """Writes what a program printed under torch."""
    (EXPECTED / f"{name}.json").write_text(json.dumps(numbers, separators=(",", ":")) + "\n")


def compare(name: str, numbers: dict[str, Any]) -> None:
    """Compares what a program printed with what was recorded. Raises: Failed with the first difference."""
    file = EXPECTED / f"{name}.json"
    if not file.exists():
        raise Failed(f"{name}: nothing recorded: `python -m tests.ecosystem record`")
    expected = json.loads(file.read_text())
    wanted = {"losses": expected["losses"], **expected["numbers"]}
    found = {"losses": numbers["losses"], **numbers["numbers"]}
    if list(wanted) != list(found):
        raise Failed(f"{name}: has numbers {sorted(set(found) ^ set(wanted))} only on one side")
    for key, values in wanted.items():
        difference = _difference(values, found[key])
        if difference:
            raise Failed(f"{name}: {key}: {difference}")


def _difference(expected: Any, found: Any) -> str | None:
    """Returns where two lists of numbers (nested, or with text) differ; None if they agree."""
    a, b = _flat(expected), _flat(found)
    if len(a) != len(b):
        return f"{len(b)} numbers, torch has {len(a)}"
    largest = max((abs(x) for x in a if _is_finite(x)), default=0.0)
    for i, (x, y) in enumerate(zip(a, b)):
        same = abs(x - y) <= RELATIVE * largest if _is_finite(x) and _is_finite(y) else x == y or (x != x and y != y)
        if not same:
            return f"number {i} is {y}, torch's is {x} (the largest is {largest:.4g})"
    return None


def _flat(values: Any) -> list[Any]:
    return [v for item in values for v in _flat(item)] if isinstance(values, list) else [values]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _output(environment: Environment, arguments: list[str], **options: Any) -> str:
    try:
        done = environment.run(arguments, timeout=SECONDS, **options)
    except subprocess.TimeoutExpired:
        raise Failed(f"more than {SECONDS} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        last = lines[-1] if lines else f"exit status {done.returncode}"
        raise Failed(f"{last[:300]}") from RuntimeError(done.stderr)
    return done.stdout
