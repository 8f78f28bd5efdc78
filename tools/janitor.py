"""Cleans up after a run of tests, however it ended, also by `kill -9`: started by tools/tests.py, and ends with it.

    python tools/janitor.py RUN FOLDER

Reads its standard input, which ends when tools/tests.py has ended. Then it kills every process of that run, and deletes
the folder of its temporary files, and the shared memory that killed ranks of MPI jobs left behind. A process belongs to
the run if it has TESTS_RUN_<RUN>=1 in its environment (Linux), or is in a process group whose number was written to the
standard input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

SHARED = Path("/dev/shm")


def of_run(run: str) -> list[int]:
    """Returns the numbers of the processes of a run, except this one."""
    mark, found = f"TESTS_RUN_{run}=1".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if mark in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def kill(groups: list[int], run: str) -> None:
    """Kills process groups and all processes of a run, also those that they start meanwhile."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(10):
        left = of_run(run)
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


def in_use() -> set[str]:
    """Returns the files of shared memory that some process has open, or has mapped."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (process / "maps").read_text(errors="replace").splitlines()
            found |= {line.split(maxsplit=5)[5] for line in lines if str(SHARED) in line}
            found |= {os.readlink(number) for number in (process / "fd").iterdir()}
    return found


def delete_shared_memory(began: float) -> None:
    """Deletes what ranks of MPI jobs have left that were killed before they could: of this user, not in use, new."""
    candidates = [file for file in SHARED.glob("mpich_shm_*") if is_ours(file, began)]
    used = in_use() if candidates else set()
    for file in candidates:
        if str(file) not in used:
            with contextlib.suppress(OSError):
                file.unlink()


def is_ours(file: Path, began: float) -> bool:
    """Returns whether this user made a file after the run had begun."""
    with contextlib.suppress(OSError):
        about = file.lstat()
        return about.st_uid == os.getuid() and about.st_mtime >= began
    return False


def main(run: str, folder: str) -> None:
    """Waits for the end of the run, and cleans up."""
    began = time.time() - 1  # the file system's clock may be a little behind
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends when the run has ended, not before
        signal.signal(number, signal.SIG_IGN)
    groups = [int(line) for line in sys.stdin]
    kill(groups, run)
    shutil.rmtree(folder, ignore_errors=True)
    delete_shared_memory(began)


if __name__ == "__main__":
    main(*sys.argv[1:])
