"""The output of processes: to files, and from there to the console with a prefix that names the rank."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from string import Template

from tensorgrad.distributed.elastic.output import LogsSpecs, Std, to_map

__all__ = ["Destination", "Logs", "prefix"]

TEMPLATE = "[${role_name}${local_rank}]:"
POLL = 0.1  # seconds
NOWHERE = os.devnull


def prefix(template: str | None, role: str, local_rank: int, rank: int) -> str:
    """What stands before each line of a rank.

    >>> from tensorgrad.distributed.elastic.logs import prefix
    >>> prefix(None, "default", 1, 5), prefix("[rank${rank}]: ", "default", 1, 5)
    ('[default1]:', '[rank5]: ')
    """
    return Template(template or TEMPLATE).safe_substitute(role_name=role, local_rank=local_rank, rank=rank)


class Destination:
    """Where one rank's output goes: paths, or None for the agent's own output."""

    def __init__(self, folder: Path, redirect: Std, tee: Std, shown: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.error_file = str(folder / "error.json")
        self.paths: list[str | None] = []
        self.teed: list[str | None] = []
        for std, name in ((Std.OUT, "stdout.log"), (Std.ERR, "stderr.log")):
            to_file = std in redirect or std in tee
            self.paths.append(str(folder / name) if to_file else None if shown else NOWHERE)
            self.teed.append(str(folder / name) if std in tee and shown else None)


class Logs:
    """The files of one round, and the thread that copies them to the console."""

    def __init__(self, folder: Path, specs: LogsSpecs, count: int) -> None:
        redirects, tees = (
            to_map(Std(specs.redirects) if isinstance(specs.redirects, int) else specs.redirects, count),
            (to_map(Std(specs.tee) if isinstance(specs.tee, int) else specs.tee, count)),
        )
        shown = specs.local_ranks_filter
        self.destinations = [
            Destination(folder / str(local), redirects[local], tees[local], not shown or local in shown)
            for local in range(count)
        ]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._files: list[tuple[str, str, object, list]] = []

    def start(self, prefixes: list[str]) -> None:
        """Begins to copy; the files need not exist yet."""
        for given, before in zip(self.destinations, prefixes):
            for path, stream in zip(given.teed, (sys.stdout, sys.stderr)):
                if path is not None:
                    self._files.append((path, before, stream, [None, b""]))
        if self._files:
            self._thread = threading.Thread(target=self._copy, name="tensorgrad-logs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Copies what is left, and ends the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _copy(self) -> None:
        while True:
            last = self._stop.wait(POLL)
            for path, before, stream, state in self._files:
                if state[0] is None and os.path.exists(path):
                    state[0] = open(path, "rb")  # noqa: SIM115
                if state[0] is not None:
                    *lines, state[1] = (state[1] + state[0].read()).split(b"\n")
                    if last and state[1]:
                        lines, state[1] = [*lines, state[1]], b""
                    if lines:
                        text = "".join(f"{before}{line.decode(errors='replace')}\n" for line in lines)
                        stream.write(text)  # type: ignore[attr-defined]
                        stream.flush()  # type: ignore[attr-defined]
            if last:
                for *_, state in self._files:
                    if state[0] is not None:
                        state[0].close()
                return
