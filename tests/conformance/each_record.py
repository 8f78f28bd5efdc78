"""Checks the records of PyTorch's op database one after the other, for `forward` and `vmap`, and reports the result.

With `--state FILE` it goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance import opdb


def run(arguments: list[str], check: Callable[[Any], list[str] | None], users: dict[str, Any]) -> dict[str, dict]:
    """Checks the records that `arguments` name, or all; returns for each its problems and its ops among `users`.

    Args:
        arguments: Those of the command line.
        check: Returns what is wrong with a record; None if it is not to be counted.
        users: op -> the names of the records in which it took the slow way, which `check` adds to.
    """
    state = Path(arguments.pop(arguments.index("--state") + 1)) if "--state" in arguments else None
    names = [a for a in arguments if not a.startswith("--")]
    done = {}
    if state is not None and state.exists():
        done = {entry["name"]: entry for entry in map(json.loads, state.read_text().splitlines())}
    for record in opdb.records():
        name = opdb.record_name(record)
        if name in done or (names and name not in names and record.name not in names):
            continue
        problems = check(record)
        if problems is None:
            continue
        done[name] = {"name": name, "problems": problems[:20], "ops": sorted(o for o, r in users.items() if name in r)}
        if state is not None:
            with state.open("a") as file:
                file.write(json.dumps(done[name]) + "\n")
        for problem in problems if names else problems[:2]:
            print(f"{name}: {problem}", flush=True)
    return done


def report(done: dict[str, dict], right: str, slow: str) -> None:
    """Prints how many records are right, which are wrong, and which ops took the slow way, each with its records."""
    print(f"{right}: {sum(not entry['problems'] for entry in done.values())} of {len(done)} records")
    print("wrong:", ", ".join(sorted(n for n, entry in done.items() if entry["problems"])) or "none")
    by_op: dict[str, list[str]] = {}
    for name, entry in done.items():
        for op in entry["ops"]:
            by_op.setdefault(op, []).append(name)
    print(f"{slow} ({len(by_op)}):")
    for op, records in sorted(by_op.items()):
        print(f"  {op}: {', '.join(records)}")
