"""What is known of each library: results.json, which several processes may write at the same time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorgrad.distributed.stores.file_store import _locked
from tests.ecosystem import table
from tests.ecosystem.environments import cache
from tests.ecosystem.libraries import Library

RESULTS = Path(__file__).resolve().parent / "results.json"


def read() -> dict[str, dict[str, Any]]:
    """Returns the results of earlier runs, by library."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(library: Library, changed: dict[str, Any]) -> None:
    """Changes some entries of one library's result, keeps what other processes wrote meanwhile, and writes the table.

    Args:
        library: The library.
        changed: The new values. Of `trains`, `exchanges` and `exits`, the programs that are not named keep theirs.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "results.lock", "wb") as lock, _locked(lock):
        results = read()
        result = results.setdefault(library.name, {})
        for name, value in changed.items():
            if name in ("trains", "exchanges", "exits"):  # by program
                value = {one: told for one, told in (result.get(name, {}) | value).items() if one in library.programs}
            result[name] = value
        written = RESULTS.with_suffix(".part")
        written.write_text(json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")
        written.replace(RESULTS)  # whole, or not at all
        table.write(results)
