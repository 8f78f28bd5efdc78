"""Runs a library's own tests under tensorgrad and under torch, in a checkout of its sources that the user has."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.ecosystem.environments import Environment, cache
from tests.ecosystem.libraries import Library, OwnTests

PLUGIN = Path(__file__).resolve().parent / "plugin"
RAN = "ran"  # the outcome of a part, which need not be collected again, for the sample of which the reason tells
TRIES = 20  # how often a part is started again after a test ended the process

Outcomes = dict[str, tuple[str, str]]  # test id -> (outcome, reason)
Sides = Sequence[tuple[Path, Path | None]]


def outcomes_file(library: Library, version: str, side: str) -> Path:
    """Returns the file of the outcomes of a library's own tests. `side` is "tensorgrad" or "torch"."""
    return cache() / "own" / f"{library.name}-{version}-{side}.jsonl"


def read(file: Path) -> Outcomes:
    """Returns the last outcome of each test in a file."""
    return {test: (outcome, reason) for test, outcome, reason in map(json.loads, _lines(file)) if outcome != RAN}


def run(own: OwnTests, environment: Environment, sources: Path, sides: Sides) -> Iterator[str]:
    """Runs the tests whose outcome is not known yet, on every side. Yields the names of the parts when they are done.

    A part is a file or folder of the row; `together` of them share a process. A test that ends the process counts as
    crashed, and the rest runs in a new one.

    Args:
        own: The tests.
        environment: Where they run.
        sources: The folder with the checkout.
        sides: (the file with the outcomes, the folder with the real torch or None) of each side.

    Raises:
        FileNotFoundError: If the checkout does not have the tests.
    """
    checkout = sources / own.repository.partition("/")[2] / own.folder
    for tests in own.tests:
        if not (checkout / tests).exists():
            raise FileNotFoundError(f"{checkout / tests} does not exist: is {checkout} a checkout of its sources?")
    for first in range(0, len(own.tests), own.together):
        tests = own.tests[first : first + own.together]
        for file, torch in sides:
            file.parent.mkdir(parents=True, exist_ok=True)
            samples = _samples(file)
            if all(samples.get(part, own.one_in + 1) <= own.one_in for part in tests):
                continue
            for _ in range(TRIES):
                before = len(read(file))
                status = _pytest(own, environment, checkout, tests, file, torch)
                if status in range(6) or len(read(file)) == before:  # pytest itself ended: not a signal
                    break
            if status in (0, 1, 5):  # all passed, some failed, none left
                with open(file, "a") as out:
                    out.writelines(json.dumps([part, RAN, str(own.one_in)]) + "\n" for part in tests)
        yield ", ".join(tests)


def forget_failures(file: Path) -> None:
    """Takes the tests that did not pass out of a file of outcomes, so that they run again."""
    failed = [test for test, (outcome, _) in read(file).items() if outcome not in ("passed", "skipped")]
    kept = [line for line in _lines(file) if not any(test.startswith(json.loads(line)[0]) for test in failed)]
    file.write_text("".join(f"{line}\n" for line in kept))


def _pytest(
    own: OwnTests, environment: Environment, checkout: Path, tests: Sequence[str], file: Path, torch: Path | None
) -> int:
    variables = environment.variables(torch)
    path = [*filter(None, [variables.get("PYTHONPATH")]), str(PLUGIN)]
    variables["PYTHONPATH"] = os.pathsep.join(path)
    variables |= {"ECOSYSTEM_OUTCOMES": str(file), "ECOSYSTEM_LEFT_OUT": json.dumps(own.left_out)}
    variables |= {"ECOSYSTEM_ONE_IN": str(own.one_in), "PYTHONDONTWRITEBYTECODE": "1", **own.variables}
    options = ["-p", "ecosystem_own", "-q", "-p", "no:cacheprovider", "--timeout", str(own.seconds)]
    options += ["--continue-on-collection-errors"]  # other parts may share the process
    command = [str(environment.python), "-m", "pytest", *tests, *options, *own.arguments]
    log = file.with_suffix(".log")
    with open(log, "a") as out:
        return subprocess.run(command, stdout=out, stderr=out, cwd=checkout, env=variables).returncode


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _samples(file: Path) -> dict[str, int]:
    """Returns of how many tests one has run, by part, in a file of outcomes: the smallest number counts."""
    ran = [(test, int(told)) for test, outcome, told in map(json.loads, _lines(file)) if outcome == RAN and told]
    return dict(sorted(ran, key=lambda item: -item[1]))


def sample(own: OwnTests, file: Path) -> str:
    """Returns of how many tests one has run, as the page tells it: "4", or "4 or fewer" where parts differ."""
    known = {number for part, number in _samples(file).items() if part in own.tests} or {own.one_in}
    return f"{max(known)} or fewer" if len(known) > 1 else str(max(known))


def done(parts: Sequence[str], file: Path) -> int:
    """Returns how many of the parts have run, or begun to, by a file of outcomes."""
    known = [json.loads(line)[0] for line in _lines(file)]
    return sum(any(test.startswith(part) for test in known) for part in parts)


def summary(ours: Outcomes, theirs: Outcomes, parts: Sequence[str] = ()) -> dict:
    """Returns how many tests pass under torch, how many of these here in all and by part, and why the others fail."""
    passed = {test for test, (outcome, _) in theirs.items() if outcome == "passed"}
    failed = {test: ours.get(test, ("missing", "was not collected")) for test in passed}
    failed = {test: told for test, told in failed.items() if told[0] != "passed"}
    of = {part: sum(test.startswith(part) for test in passed) for part in parts}
    fail = {part: sum(test.startswith(part) for test in failed) for part in parts}
    reasons = Counter(f"{outcome}: {reason}"[:160] for outcome, reason in failed.values())
    return {
        "passed under torch": len(passed),
        "passed": len(passed) - len(failed),
        "by part": {_short(part): [of[part] - fail[part], of[part]] for part in parts if of[part]},
        "reasons": [[reason, count] for reason, count in reasons.most_common(12)],
    }


def _short(part: str) -> str:
    """Returns what the page calls a part: `tests/models/gpt2/test_modeling_gpt2.py` is gpt2."""
    return Path(part).stem.removeprefix("test_").removeprefix("modeling_")
